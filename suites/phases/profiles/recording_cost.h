#pragma once
#include <functional>
#include <nlohmann/json.hpp>

#include "suites/instrument/cupti/activity_collector.h"

namespace suites {

/// What recording costs part by part. Each round times a step with nothing recorded, with every
/// part alone added to the kernels, and with all; the second step behind a switch counts, and every
/// other round goes backwards. `step`: takes one and gives its ms; `untouched_ms`: a step before
/// anything was recorded, which no later step without recording may reach again.
/// Rows: {what was recorded, median ms, longer than untouched in percent}.
nlohmann::json recording_cost_rows(ActivityCollector& collector,
                                   const std::function<double()>& step, double untouched_ms,
                                   int64_t rounds);

}  // namespace suites
