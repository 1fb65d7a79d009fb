#pragma once
#include <string>

#include "harness/results/results.h"

namespace harness {

/// One sentence when the runbook of a run is not the shipped one of its name; empty when it is, and
/// for runs that do not record it.
inline std::string runbook_notice(const Results& results) {
  const nlohmann::json none;
  const auto& recorded =
      results.environment.contains("runbook") ? results.environment["runbook"] : none;
  if (!recorded.is_object() || !recorded.contains("shipped") || recorded["shipped"] != false)
    return "";
  const bool known = recorded.contains("shipped_sha256") && recorded["shipped_sha256"].is_string();
  return known ? "This is not the shipped runbook " + results.run.runbook +
                     ": its content differs from the one in configs/runbooks."
               : "This is no shipped runbook: configs/runbooks has none of the name " +
                     results.run.runbook + ".";
}

}  // namespace harness
