#include "harness/evidence/derive/unjudged_checks.h"

#include <algorithm>
#include <string>

namespace harness {
namespace {

bool states_amiss(const CriterionResult& c, const std::string& phase) {
  if (c.phase != phase && !c.metric.starts_with(phase + ".")) return false;
  return c.severity == Severity::kInfo ? c.verdict == CriterionVerdict::kFail
                                       : c.verdict != CriterionVerdict::kPass;
}

}  // namespace

std::vector<Deviation> unjudged_checks(const std::vector<Finding>& failed,
                                       const std::vector<CriterionResult>& criteria) {
  std::vector<Deviation> found;
  for (const Finding& one : failed) {
    const std::string phase = one.fact.substr(2);  // P-
    if (one.priority != Priority::kImmediate) continue;
    if (one.code == "DATA_SUBSTITUTED") continue;  // a deviation of its own
    if (std::ranges::any_of(criteria, [&](const auto& c) { return states_amiss(c, phase); }))
      continue;
    found.push_back({"D-checks." + phase + "." + one.code,
                     one.id + " of step " + phase + " is judged by no criterion: " + one.symptom,
                     one.code});
  }
  return found;
}

}  // namespace harness
