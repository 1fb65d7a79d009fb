#include "suites/phases/profiles/trace_faults.h"

#include "harness/trace/analysis/attribution.h"
#include "suites/phases/phase.h"

namespace suites {

void count_twice(harness::trace::Trace& trace, const std::string& step_range,
                 const std::string& from, const std::string& to) {
  const auto found = harness::trace::attribute(trace, step_range);
  const auto is_in = [&](int64_t range, const std::string& name) {
    return range != harness::trace::kNone &&
           trace.name_of(found.ranges[static_cast<size_t>(range)].name) == name;
  };
  int64_t call_in_to = harness::trace::kNone;
  for (size_t i = 0; i < trace.calls.size(); ++i)
    if (trace.calls[i].correlation != 0 && is_in(found.range_of_call[i], to))
      call_in_to = static_cast<int64_t>(i);
  if (call_in_to == harness::trace::kNone)
    throw ConfigError("fault P30 needs a launch in range " + to + ", got none");
  const size_t recorded = trace.work.size();
  for (size_t i = 0; i < recorded; ++i) {
    if (!is_in(found.range_of_work[i], from)) continue;
    harness::trace::DeviceWork again = trace.work[i];
    again.correlation = trace.calls[static_cast<size_t>(call_in_to)].correlation;
    trace.work.push_back(again);
  }
}

}  // namespace suites
