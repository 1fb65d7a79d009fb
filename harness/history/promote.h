#pragma once
#include <string>

#include "harness/results/results.h"
#include "harness/runbook/plan/baseline.h"

namespace harness {

/// The baseline that a finished run sets: its times, rates and memory with their intervals, for its
/// runbook and hardware. Throws ConfigError when the run may not set one: NO-GO, an unknown build,
/// a deviation (it was not the runbook that ran), no such figure, no reason.
BaselineFile make_baseline(const Results& results, const std::string& reason);

/// One line a figure of `now`, "metric: old -> new", and one for each that is gone.
std::string promotion_text(const BaselineSet& before, const BaselineFile& now);

}  // namespace harness
