#pragma once
#include <string_view>

#include "harness/results/results.h"

namespace harness {

/// What a throughput gate lets happen next.
enum class GateDecision {
  kProceed,    ///< fast enough for a long run
  kStop,       ///< not fast enough, and not hopeless: no long run
  kAbort,      ///< hopeless: no long run, look for the cause
  kUndecided,  ///< the rate does not decide
};

/// `proceed`, `abort`: verdicts of the criteria "at least fast enough" and "not hopeless". Pure. A
/// rate that is hopeless aborts whatever the other criterion is, and only PASS proceeds.
GateDecision decide_gate(CriterionVerdict proceed, CriterionVerdict abort);

/// PROCEED, STOP, ABORT or UNDECIDED.
std::string_view gate_word(GateDecision decision);

}  // namespace harness
