#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "harness/evidence/error.h"

namespace harness {

/// Throws EvidenceError naming `file` unless the environment and the sections that are read by path
/// ("/build/build_id") are objects: nlohmann's look-up throws its own error inside a list.
inline void require_sections(const nlohmann::json& environment, const std::string& file) {
  if (!environment.is_object()) throw EvidenceError(file, "the environment is not an object");
  for (const char* section : {"build", "gpu", "machine"})
    if (environment.contains(section) && !environment[section].is_object())
      throw EvidenceError(file,
                          std::string("'") + section + "' of the environment is not an object");
}

}  // namespace harness
