#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "harness/stats/distributions.h"
#include "harness/stats/estimators/estimator_functions.h"
#include "harness/stats/estimators/selection.h"
#include "harness/stats/order_statistics.h"

namespace harness::stats {
namespace {

struct FoundLine {
  const GroupEvidence* group;
  const MetricLine* line;
};

std::string where(const FoundLine& found) {
  return "case " + found.line->case_id + " of process " + found.group->id;
}

/// Every metric line the spec names, in processes that count; NoData when there is none.
std::vector<FoundLine> find_lines(const MetricSpec& spec, const EvidenceView& view) {
  require_complete(view);
  const Source source = parse_source(spec.source.empty() ? spec.name : spec.source);
  std::vector<FoundLine> found;
  for (const GroupEvidence& group : view.groups)
    for (const MetricLine& line : group.metrics)
      if (line.name == source.name && (source.case_id.empty() || line.case_id == source.case_id))
        found.push_back({&group, &line});
  if (!found.empty()) return found;
  if (const auto failed = failed_case(view)) throw NoData(*failed);
  throw NoData("no metric line '" + source.name + "'" +
               (source.case_id.empty() ? "" : " in case '" + source.case_id + "'"));
}

double number_of(const FoundLine& found, const std::string& unit) {
  const MetricLine& line = *found.line;
  if (!case_is_ok(*found.group, line.case_id))
    throw NoData(where(found) + " did not end ok, which voids its metric '" + line.name + "'");
  if (!line.value || !std::isfinite(*line.value))
    throw NoData("metric line '" + line.name + "' in " + where(found) +
                 " is null: " + (line.reason.empty() ? "no reason given" : line.reason));
  if (line.unit != unit)
    throw NoData("metric line '" + line.name + "' is in '" + line.unit + "', the metric in '" +
                 unit + "'");
  return *line.value;
}

void add_file(Metric& metric, const std::string& file) {
  if (std::ranges::find(metric.samples, file) == metric.samples.end())
    metric.samples.push_back(file);
}

/// Folds all lines; a failed case anywhere leaves lines out, so the figure would be wrong.
void fold(const MetricSpec& spec, const EvidenceView& view, Metric& metric,
          const std::function<double(double, double)>& combine) {
  const std::vector<FoundLine> lines = find_lines(spec, view);
  if (const auto failed = failed_case(view)) throw NoData(*failed);
  for (const FoundLine& found : lines) {
    const double value = number_of(found, spec.unit);
    metric.value = metric.value ? combine(*metric.value, value) : value;
    add_file(metric, found.group->file);
  }
  metric.n = static_cast<int64_t>(lines.size());
}

struct CheckCount {
  int64_t run = 0;
  int64_t failed = 0;
};

CheckCount count_checks(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  require_complete(view);
  CheckCount count;
  for (const GroupEvidence& group : view.groups) {
    for (const CheckLine& check : group.checks) {
      if (!check.id.starts_with(spec.source)) continue;
      ++count.run;
      if (!check.ok) ++count.failed;
      add_file(metric, group.file);
    }
  }
  if (count.run == 0) {
    if (const auto failed = failed_case(view)) throw NoData(*failed);
    throw NoData(spec.source.empty()
                     ? "no check was run"
                     : "no check whose id starts with '" + spec.source + "' was run");
  }
  metric.n = count.run;
  return count;
}

}  // namespace

void estimate_value(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  const std::vector<FoundLine> lines = find_lines(spec, view);
  if (lines.size() > 1)
    throw NoData(std::to_string(lines.size()) + " metric lines '" + lines[0].line->name +
                 "', first in " + where(lines[0]) + " and " + where(lines[1]) + "; want one");
  metric.value = number_of(lines[0], spec.unit);
  metric.n = 1;
  add_file(metric, lines[0].group->file);
}

void estimate_min(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  fold(spec, view, metric, [](double a, double b) { return std::min(a, b); });
}

void estimate_max(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  fold(spec, view, metric, [](double a, double b) { return std::max(a, b); });
}

void estimate_mean(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  const std::vector<FoundLine> lines = find_lines(spec, view);
  if (const auto failed = failed_case(view)) throw NoData(*failed);
  std::vector<double> values;
  for (const FoundLine& found : lines) {
    values.push_back(number_of(found, spec.unit));
    add_file(metric, found.group->file);
  }
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  metric.value = mean;
  metric.n = std::ssize(values);
  metric.method = "mean";
  metric.level = kVerdictLevel;
  if (values.size() < 2) return;  // one line has no spread
  if (squares == 0)
    throw NoData("all " + std::to_string(values.size()) + " metric lines '" + lines[0].line->name +
                 "' are equal: they are no independent results");
  const double deviation = std::sqrt(squares / (n - 1));
  const auto half = [&](double level) {
    return student_t_quantile(1 - (1 - level) / 2, n - 1) * deviation / std::sqrt(n);
  };
  metric.lo = mean - half(kVerdictLevel), metric.hi = mean + half(kVerdictLevel);
  metric.lo95 = mean - half(0.95), metric.hi95 = mean + half(0.95);
  metric.details["deviation"] = deviation;
}

void estimate_all(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  // One line with 0 decides, whatever the other cases are; 1 needs all of them.
  for (const FoundLine& found : find_lines(spec, view)) {
    const std::optional<double>& value = found.line->value;
    if (!value || *value != 0) continue;
    metric.value = 0;
    metric.n = 1;
    metric.details["first_false"] = where(found);
    add_file(metric, found.group->file);
    return;
  }
  fold(spec, view, metric, [](double a, double b) { return a == 1 && b == 1 ? 1.0 : 0.0; });
}

void estimate_checks_run(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  metric.value = static_cast<double>(count_checks(spec, view, metric).run);
}

void estimate_checks_failed(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  const CheckCount count = count_checks(spec, view, metric);
  // A case that broke off may have left checks out: then none failed is not known.
  if (count.failed == 0)
    if (const auto failed = failed_case(view)) throw NoData(*failed + "; checks may be missing");
  metric.value = static_cast<double>(count.failed);
  metric.details["run"] = count.run;
}

}  // namespace harness::stats
