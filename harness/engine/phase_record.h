#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "harness/process/outcome.h"

namespace harness {

/// phases/PHASE/phase.json: how a phase ended. Written once, when it ends; a phase folder without
/// it was cut off.
struct PhaseRecord {
  std::string phase;
  StepStatus status = StepStatus::kNotRun;
  std::string
      cause;  ///< from the closed list of causes (harness/process/outcome.h); empty when COMPLETED
  std::string reason;  ///< one sentence
  double seconds = 0;  ///< wall time of all attempts
  int64_t attempts = 0;
  std::vector<GroupOutcome> groups;  ///< the attempt of each group that counts
  template <class V>
  static void describe(V& v) {
    v({.name = "phase", .doc = "phase id of the runbook", .required = true}, &PhaseRecord::phase);
    v({.name = "status", .doc = "step status", .required = true}, &PhaseRecord::status);
    v({.name = "cause", .doc = "cause from the closed list; empty when COMPLETED"},
      &PhaseRecord::cause);
    v({.name = "reason", .doc = "one sentence"}, &PhaseRecord::reason);
    v({.name = "seconds", .doc = "wall time of all attempts", .unit = "s"}, &PhaseRecord::seconds);
    v({.name = "attempts", .doc = "most starts of one group", .unit = "count"},
      &PhaseRecord::attempts);
    v({.name = "groups", .doc = "how each process ended"}, &PhaseRecord::groups);
  }
};

}  // namespace harness
