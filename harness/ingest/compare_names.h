#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "harness/ingest/ingest.h"

namespace harness {

/// What was run must be what was planned, name by name; zero names never pass. `what`: "tests" or
/// "benchmarks".
inline IngestVerdict compare_names(std::vector<std::string> planned, std::vector<std::string> run,
                                   const std::string& what) {
  if (planned.empty()) return {"NO_TESTS", "the filter selects no " + what};
  std::sort(planned.begin(), planned.end());
  std::sort(run.begin(), run.end());
  if (planned == run) return {};
  std::vector<std::string> missing, extra;
  std::set_difference(planned.begin(), planned.end(), run.begin(), run.end(),
                      std::back_inserter(missing));
  std::set_difference(run.begin(), run.end(), planned.begin(), planned.end(),
                      std::back_inserter(extra));
  std::string reason = std::to_string(run.size()) + " " + what + " ran, " +
                       std::to_string(planned.size()) + " were planned";
  if (!missing.empty()) reason += "; missing: " + missing.front();
  if (!extra.empty()) reason += "; not planned: " + extra.front();
  return {"BAD_TEST_COUNT", reason};
}

/// Ends every case of the group alike and closes the evidence.
inline void end_cases(const IngestTarget& target, const std::string& failure,
                      base::protocol::Emitter& emitter) {
  for (const auto& id : target.cases) {
    if (failure.empty())
      emitter.end_case(id);
    else
      emitter.fail_case(id, failure);
  }
  emitter.done();
}

}  // namespace harness
