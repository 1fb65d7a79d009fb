#pragma once
#include <string>

#include "harness/trace/trace.h"

namespace suites {

/// Fault P30: what range `from` asked for is counted in `to` as well, as when every branch computes
/// the others' work. Throws ConfigError when the trace has no launch in `to`.
void count_twice(harness::trace::Trace& trace, const std::string& step_range,
                 const std::string& from, const std::string& to);

}  // namespace suites
