#pragma once
#include <cstdint>
#include <string>

#include "nsa/program/input_error.h"

namespace nsa::train {

/// Throws InputError "TASK: NAME must be WANT, got HAVE" unless `ok`.
inline void require_size(bool ok, const std::string& task, const std::string& name,
                         const std::string& want, int64_t have) {
  if (!ok)
    throw InputError(task + ": " + name + " must be " + want + ", got " + std::to_string(have));
}

}  // namespace nsa::train
