#pragma once
#include "harness/trace/analysis/profile.h"

namespace harness::trace {

/// Why the device was idle inside the steps. `busy`: union of all work; `windows`: the steps.
IdleBreakdown break_down_idle(const Trace& trace, const Attribution& found,
                              const std::vector<Interval>& busy,
                              const std::vector<Interval>& windows);

}  // namespace harness::trace
