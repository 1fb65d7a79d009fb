#pragma once
#include <string>

#include "base/text/nearest.h"
#include "harness/runbook/checks/names.h"
#include "harness/schema/parse/nearest.h"
#include "harness/schema/parse/source.h"

/// Small words the checks are written in.
namespace harness {

/// The value behind `key`, or the object itself when it has none: where an error points to.
inline const nlohmann::json& at(const nlohmann::json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() ? object : *found;
}

/// `value` is one of `list`, or the error names the nearest.
inline void require_one_of(const Source& source, const nlohmann::json& place,
                           const std::string& what, const std::string& value,
                           const std::vector<std::string>& list) {
  if (contains(list, value)) return;
  const std::string nearest = base::nearest_name(value, list);
  source.fail(place, what + " must be one of " + joined(list) + ", got " + in_quotes(value) +
                         (nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
}

inline void require(const Source& source, const nlohmann::json& place, bool ok,
                    const std::string& message) {
  if (!ok) source.fail(place, message);
}

}  // namespace harness
