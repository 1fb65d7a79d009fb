#pragma once
#include <map>
#include <string_view>

#include "harness/results/results.h"
#include "harness/runbook/runbook.h"
#include "harness/stats/evidence_view.h"

/// How a figure follows from the raw evidence: one table, keyed by MetricSpec::estimator.
///
/// | estimator     | reads                       | value |
/// |---------------|-----------------------------|----------------------------------------------------|
/// | value         | metric lines named `source` | the only line of that name in the phase | | sum,
/// min, max | metric lines named `source` | over all processes and cases                       | |
/// all           | metric lines named `source` | 1 when every line is 1, else 0 | | checks_run    |
/// checks, id prefix `source`  | how many ran (empty source: every check)           | |
/// checks_failed | checks, id prefix `source`  | how many failed; null when none ran | | cases_ok
/// | cases, id prefix `source`   | how many ended ok (empty source: every case)       | | median |
/// samples of series `source`  | median, order-statistics interval                  | | arm_median
/// | samples of arm `arms[0]`    | the same for one arm of an A/B                     | |
/// paired_ratio  | samples of both `arms`      | speed-up baseline / candidate, signed-rank
/// interval| | rate          | samples of series `source`  | mean rate of one run, within-run
/// interval          |
///
/// `source` defaults to the metric's name (checks_*, cases_ok: to everything) and may carry a case:
/// "CASE/SERIES" reads that case only. An arm X is the series "X" or "SOURCE.X"; an extra series
/// "aa" (or "SOURCE.aa") is the baseline measured a second time and gives the A/A noise floor.
///
/// Nothing becomes a number without data: value is null and null_reason says why. A failed case
/// voids its samples and its metric lines. A speed (see `is_performance`) of a process in which a
/// check failed is `withheld`: null, with the mismatch named.
namespace harness {

using Estimator = void (*)(const MetricSpec& spec, const EvidenceView& view, Metric& metric);

/// The table. The runbook reader takes the accepted names from its keys.
const std::map<std::string_view, Estimator>& estimators();

/// Fills every field of the metric "PHASE.NAME". Numbers are rounded to 12 significant digits, so
/// that the last bit of a math library does not show in results.json.
/// Throws std::invalid_argument when the table lacks spec.estimator.
Metric estimate(const MetricSpec& spec, const EvidenceView& view);

/// Whether the figure speaks about speed, so that a failed check withholds it: sample estimators,
/// units of time and rate, names ending in speedup_ratio.
bool is_performance(const MetricSpec& spec);

}  // namespace harness
