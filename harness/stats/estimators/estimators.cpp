#include "harness/stats/estimators/estimators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "harness/results/number.h"
#include "harness/stats/estimators/estimator_functions.h"
#include "harness/stats/estimators/selection.h"

namespace harness {
namespace {

constexpr int kStoredDigits = 12;

void round_stored(nlohmann::json& node) {
  if (node.is_number_float()) {
    const double value = node.get<double>();
    node = std::isfinite(value) ? nlohmann::json(round_significant(value, kStoredDigits))
                                : nlohmann::json();
  } else if (node.is_structured()) {
    for (auto& child : node) round_stored(child);
  }
}

void clear_figure(Metric& metric) {
  metric.value = metric.lo = metric.hi = metric.lo95 = metric.hi95 = std::nullopt;
  metric.level = 0;
  metric.n = 0;
  metric.verdict.clear();
  metric.details = nlohmann::json::object();
}

/// Rounds what is stored; a number that is not finite makes the whole figure null.
void finish(Metric& metric) {
  for (auto* field : {&metric.value, &metric.lo, &metric.hi, &metric.lo95, &metric.hi95}) {
    if (!*field) continue;
    if (!std::isfinite(**field)) throw stats::NoData("the figure is not finite");
    *field = round_significant(**field, kStoredDigits);
  }
  round_stored(metric.details);
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::ranges::find(list, text) != list.end();
}

}  // namespace

const std::map<std::string_view, Estimator>& estimators() {
  static const std::map<std::string_view, Estimator> table = {
      {"all", stats::estimate_all},
      {"checks_failed", stats::estimate_checks_failed},
      {"checks_run", stats::estimate_checks_run},
      {"eta", stats::estimate_eta},
      {"max", stats::estimate_max},
      {"mean", stats::estimate_mean},
      {"median", stats::estimate_median},
      {"min", stats::estimate_min},
      {"paired_overhead", stats::estimate_paired_overhead},
      {"paired_ratio", stats::estimate_paired_ratio},
      {"rate", stats::estimate_rate},
      {"value", stats::estimate_value},
  };
  return table;
}

bool is_sampled(const MetricSpec& spec) {
  return is_one_of(spec.estimator, {"median", "paired_ratio", "paired_overhead", "rate", "eta"});
}

bool is_performance(const MetricSpec& spec) {
  return is_sampled(spec) || is_one_of(spec.unit, {"ms", "us", "s", "tok_s", "gb_s", "tflop_s"}) ||
         spec.name.ends_with("speedup_ratio");
}

Metric estimate(const MetricSpec& spec, const EvidenceView& view) {
  const auto entry = estimators().find(spec.estimator);
  if (entry == estimators().end())
    throw std::invalid_argument("metric '" + spec.name + "': no estimator '" + spec.estimator +
                                "'; harness/stats/estimators/estimators.h lists them");
  Metric metric;
  metric.name = view.phase + "." + spec.name;
  metric.id = "M-" + metric.name;
  metric.phase = view.phase;
  metric.unit = spec.unit;
  metric.method = "exact";
  try {
    if (is_performance(spec))
      if (const auto mismatch = stats::output_mismatch(view)) metric.withheld = *mismatch;
    entry->second(spec, view, metric);
    finish(metric);
  } catch (const stats::NoData& why) {
    clear_figure(metric);
    metric.null_reason = why.what();
  } catch (const std::invalid_argument& why) {
    clear_figure(metric);
    metric.null_reason = why.what();
  }
  if (!metric.withheld.empty() && metric.value) {
    clear_figure(metric);
    metric.null_reason = "withheld: " + metric.withheld;
  }
  return metric;
}

}  // namespace harness
