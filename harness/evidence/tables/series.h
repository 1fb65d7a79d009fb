#pragma once
#include <span>
#include <string>
#include <vector>

#include "harness/evidence/derive/raw_evidence.h"
#include "harness/results/results.h"
#include "harness/runbook/runbook.h"

namespace harness {

/// Most points of a line that results.json keeps.
inline constexpr size_t kLinePoints = 400;

/// Rate, memory and loss over the completed steps of a phase, a line a process, from its
/// heartbeats. A quantity with fewer than three points gives no series, nor does memory that stays
/// within 1 %: its figure is enough.
std::vector<Series> step_series(const std::string& phase, const std::vector<RawGroup>& groups);

/// Tables of a kind whose first column is a number that grows: the figures of one unit over it, a
/// line a column, with their intervals. Fewer than three rows give no series.
std::vector<Series> scaling_series(const KindSpec& kind, const std::string& phase,
                                   std::span<const Metric> figures);

/// Thresholds of criteria on a figure that a series over steps shows.
void add_limits(std::vector<Series>& series, const std::vector<CriterionResult>& criteria);

/// At most about `most` points [x, ...], in order, with the smallest and the largest y of every
/// stretch; all of them where they are few.
nlohmann::json thinned(const nlohmann::json& points, size_t most);

}  // namespace harness
