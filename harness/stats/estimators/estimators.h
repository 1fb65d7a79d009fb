#pragma once
#include <map>
#include <string_view>

#include "harness/results/results.h"
#include "harness/runbook/runbook.h"
#include "harness/stats/estimators/evidence_view.h"

/// How a figure follows from the raw evidence: one table, keyed by MetricSpec::estimator.
///
/// From metric lines named `source`:
///  - value: the only line of that name in the phase
///  - min, max: over all processes and cases
///  - all: 1 when every line is 1, else 0
/// From checks whose id starts with `source` (empty: all of them):
///  - checks_run, checks_failed: how many checks ran, how many failed
/// From samples of the series `source`:
///  - median: median with its order-statistics interval; the unit of analysis is the process when
///    there are several, else the sample
///  - mean: mean with Student's interval, n >= 2, of lines that are not all equal (seeds)
///  - rate: mean rate of a steady run with a within-run interval and guard band (training)
///  - eta: seconds that a long run takes at that rate, its bounds from the bounds of the rate; the
///    metric lines `step.tokens_count` and `eta.steps_count` give the tokens of a step and the
///    steps
/// From samples of `arms` = [baseline, candidate], in units of time:
///  - paired_ratio: speed-up baseline / candidate with its exact signed-rank interval and A/B
///  verdict
///  - paired_overhead: the same comparison as percent of time that the candidate takes more than
///  the baseline, without a verdict of its own
///
/// `source` defaults to the metric's name where a series or line is needed, and may carry a case:
/// "CASE/SERIES" reads that case only. An arm X is the series "X" or "SOURCE.X"; "X.aa" or
/// "SOURCE.X.aa" is the same arm measured once more in each round. The noise floor is that of the
/// pair's own arms, the larger where both have a repeat; a pair without any is INCONCLUSIVE.
///
/// Without data value is null, and null_reason is set. A failed case
/// voids its samples and its metric lines. A speed (see `is_performance`) is `withheld` when a
/// check failed in a process it comes from: value is null and `withheld` names the mismatch.
namespace harness {

using Estimator = void (*)(const MetricSpec& spec, const EvidenceView& view, Metric& metric);

/// The table. The runbook reader takes the accepted names from its keys.
const std::map<std::string_view, Estimator>& estimators();

/// Fills every field of the metric "PHASE.NAME". Numbers are rounded to 12 significant digits, so
/// that the last bit of a math library does not show in results.json.
/// Throws std::invalid_argument when the table lacks spec.estimator.
Metric estimate(const MetricSpec& spec, const EvidenceView& view);

/// Whether the figure is a speed, so that a failed check withholds it: sample estimators,
/// units of time and rate, names ending in speedup_ratio.
bool is_performance(const MetricSpec& spec);

/// Whether the figure rests on samples, not on checks or metric lines.
bool is_sampled(const MetricSpec& spec);

}  // namespace harness
