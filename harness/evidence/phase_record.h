#pragma once
#include <cstdint>
#include <string>

#include "harness/results/results.h"

namespace harness {

/// phases/PHASE/phase.json: how a phase ended, as the engine saw it. Written once, when the phase
/// ends; a phase folder without it was cut off.
struct PhaseRecord {
  std::string phase;
  StepStatus status = StepStatus::kNotRun;
  std::string cause;   ///< from the closed list of causes; empty when COMPLETED
  std::string reason;  ///< one sentence
  double seconds = 0;  ///< wall time of all attempts
  int64_t attempts = 0;
  template <class V>
  static void describe(V& v) {
    v({.name = "phase", .doc = "phase id of the runbook", .required = true}, &PhaseRecord::phase);
    v({.name = "status", .doc = "step status", .required = true}, &PhaseRecord::status);
    v({.name = "cause", .doc = "cause from the closed list; empty when COMPLETED"},
      &PhaseRecord::cause);
    v({.name = "reason", .doc = "one sentence"}, &PhaseRecord::reason);
    v({.name = "seconds", .doc = "wall time of all attempts", .unit = "s"}, &PhaseRecord::seconds);
    v({.name = "attempts", .doc = "how often it was started", .unit = "count"},
      &PhaseRecord::attempts);
  }
};

}  // namespace harness
