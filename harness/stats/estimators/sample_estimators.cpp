#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "harness/stats/estimators/estimator_functions.h"
#include "harness/stats/estimators/selection.h"
#include "harness/stats/order_statistics.h"
#include "harness/stats/signed_rank.h"
#include "harness/stats/within_run.h"

namespace harness::stats {
namespace {

/// Factor from one unit to another; times convert, everything else must be equal.
double unit_factor(const std::string& from, const std::string& to) {
  if (from == to) return 1;
  constexpr std::array<std::pair<const char*, double>, 3> seconds = {
      {{"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}}};
  double factor_from = 0, factor_to = 0;
  for (const auto& [name, value] : seconds) {
    if (from == name) factor_from = value;
    if (to == name) factor_to = value;
  }
  if (factor_from == 0 || factor_to == 0)
    throw NoData("samples are in '" + from + "', the metric in '" + to + "'");
  return factor_from / factor_to;
}

void set_interval(std::optional<double>& lo, std::optional<double>& hi,
                  const std::optional<Interval>& interval, double factor) {
  if (!interval) return;
  lo = interval->lo * factor;
  hi = interval->hi * factor;
}

void median_of_series(const std::vector<Series>& series, int64_t looks, Metric& metric) {
  const double factor = unit_factor(series.front().unit, metric.unit);
  std::vector<double> units_of_analysis;
  size_t samples = 0;
  for (const Series& s : series) {
    require_finite(s.values, "process '" + s.process + "'");
    units_of_analysis.push_back(median(s.values));
    samples += s.values.size();
    metric.samples.push_back(s.file);
  }
  if (series.size() == 1) units_of_analysis = series.front().values;
  metric.value = median(units_of_analysis) * factor;
  metric.n = static_cast<int64_t>(units_of_analysis.size());
  metric.level = kVerdictLevel;
  set_interval(metric.lo, metric.hi, median_interval(units_of_analysis, level_each(looks)), factor);
  set_interval(metric.lo95, metric.hi95, median_interval(units_of_analysis, kShownLevel), factor);
  metric.details["unit_of_analysis"] = series.size() == 1 ? "sample" : "process";
  metric.details["samples"] = samples;
}

/// `work` over value and bounds: a rate from the time per unit of work, or a time from a rate. The
/// larger one gives the smaller other, so the bounds change places.
void divide_into(double work, Metric& metric) {
  if (metric.value) metric.value = work / *metric.value;
  for (auto [lo, hi] : {std::pair{&metric.lo, &metric.hi}, std::pair{&metric.lo95, &metric.hi95}}) {
    if (!*lo || !*hi) continue;
    const double low = work / **hi, high = work / **lo;
    *lo = low;
    *hi = high;
  }
}

bool is_rate_unit(const std::string& unit) { return unit.ends_with("_s"); }

/// Step times in the series' own time unit, or for a rate the time per unit of work.
std::vector<double> as_times(const Series& series) {
  require_positive(series.values, "process '" + series.process + "'");
  std::vector<double> times = series.values;
  if (is_rate_unit(series.unit))
    for (double& t : times) t = 1 / t;
  return times;
}

/// Widens metric's bounds to hold another process's interval; without one there is no bound.
void widen(std::optional<double>& lo, std::optional<double>& hi,
           const std::optional<Interval>& interval, bool first) {
  if (!interval || (!first && (!lo || !hi))) {
    lo = hi = std::nullopt;
    return;
  }
  lo = first ? interval->lo : std::min(*lo, interval->lo);
  hi = first ? interval->hi : std::max(*hi, interval->hi);
}

/// The count that the metric lines `name` agree on. Throws NoData when there is none above 0.
double agreed_count(const EvidenceView& view, const std::string& case_id, const std::string& name) {
  MetricSpec spec;
  spec.unit = "count";
  spec.source = case_id.empty() ? name : case_id + "/" + name;
  Metric smallest, largest;
  estimate_min(spec, view, smallest);
  estimate_max(spec, view, largest);
  if (!smallest.value || !largest.value) throw NoData("no metric line '" + name + "'");
  if (*smallest.value != *largest.value)
    throw NoData("metric lines '" + name + "' differ between cases or processes");
  if (!(*smallest.value > 0)) throw NoData("metric line '" + name + "' is not above 0");
  return *smallest.value;
}

}  // namespace

void estimate_median(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  metric.method = "median";
  const Source source = parse_source(spec.source.empty() ? spec.name : spec.source);
  median_of_series(select_series(view, source, {source.name}), view.looks, metric);
}

void estimate_rate(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  metric.method = "rate";
  const Source source = parse_source(spec.source.empty() ? spec.name : spec.source);
  const std::vector<Series> series = select_series(view, source, {source.name});
  const double guard = view.device == "cuda" ? kGpuGuardBand : kCpuGuardBand;
  metric.level = kVerdictLevel;
  metric.n = static_cast<int64_t>(series.size() == 1 ? series[0].values.size() : series.size());
  std::vector<double> means;
  auto& runs = metric.details["runs"] = nlohmann::json::array();
  for (const Series& s : series) {
    const WithinRun run = within_run_mean(as_times(s), guard);
    widen(metric.lo, metric.hi, run.verdict_interval, means.empty());
    widen(metric.lo95, metric.hi95, run.shown_interval, means.empty());
    means.push_back(run.mean);
    metric.samples.push_back(s.file);
    runs.push_back({{"process", s.process},
                    {"steps", s.values.size()},
                    {"blocks", run.blocks},
                    {"block_length", run.block_length},
                    {"autocorrelation", run.autocorrelation},
                    {"inflation", run.inflation}});
  }
  metric.value = median(means);
  if (is_rate_unit(series.front().unit)) divide_into(1, metric);
  metric.details["guard_band"] = guard;
  const double factor = unit_factor(series.front().unit, spec.unit);
  for (auto* field : {&metric.value, &metric.lo, &metric.hi, &metric.lo95, &metric.hi95})
    if (*field) **field *= factor;
}

void estimate_eta(const MetricSpec& spec, const EvidenceView& view, Metric& metric) {
  const std::string case_id = parse_source(spec.source).case_id;
  const double tokens = agreed_count(view, case_id, "step.tokens_count");
  const double steps = agreed_count(view, case_id, "eta.steps_count");
  MetricSpec rate = spec;
  rate.unit = "tok_s";
  estimate_rate(rate, view, metric);
  divide_into(steps * tokens, metric);
  const double factor = unit_factor("s", spec.unit);
  for (auto* field : {&metric.value, &metric.lo, &metric.hi, &metric.lo95, &metric.hi95})
    if (*field) **field *= factor;
  metric.details["step_tokens"] = tokens;
  metric.details["steps"] = steps;
}

}  // namespace harness::stats
