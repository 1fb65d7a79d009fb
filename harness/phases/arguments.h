#pragma once
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/runbook/checks/require.h"
#include "harness/schema/error.h"

namespace harness {

/// An argument that is a list of strings; absent: empty. Throws ConfigError for anything else.
inline std::vector<std::string> text_list(const nlohmann::json& args, const char* key) {
  const nlohmann::json list = args.value(key, nlohmann::json::array());
  try {
    return list.get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw ConfigError(std::string("args.") + key + " must be a list of strings, got " +
                      list.dump());
  }
}

inline bool matches_any(const std::vector<std::string>& globs, const std::string& path) {
  return std::ranges::any_of(globs, [&](const auto& glob) { return glob_match(glob, path); });
}

}  // namespace harness
