#pragma once
#include "nsa/diagnostics/run_record.h"

namespace nsa {

/// Records a stage that has one backend, so that nothing else could have been asked for.
inline void record_stage(const char* stage, const std::string& backend,
                         const std::string& detail = "") {
  record_backend(stage, backend, backend, detail, "", /*strict=*/false);
}

}  // namespace nsa
