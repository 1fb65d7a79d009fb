#include "harness/history/promote.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text/plain_text.h"
#include "harness/evidence/derive/baselines.h"
#include "harness/results/number.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

constexpr auto kUnits =
    std::to_array<std::string_view>({"ms", "us", "s", "tok_s", "mib", "gb_s", "tflop_s"});

bool can_be_baseline(const Metric& metric) {
  return std::ranges::find(kUnits, metric.unit) != kUnits.end() && metric.value &&
         std::isfinite(*metric.value) && *metric.value > 0 && metric.withheld.empty();
}

/// A measured figure keeps its interval; an exact one is its own.
BaselineMetric baseline_metric(const Metric& metric) {
  const double value = metric.value.value_or(0);  // can_be_baseline: there is one
  const bool measured = metric.lo && metric.hi && metric.method != "exact";
  return {metric.name,
          value,
          measured ? metric.lo.value_or(value) : value,
          measured ? metric.hi.value_or(value) : value,
          std::max<int64_t>(metric.n, 1),
          measured ? metric.level : 0,
          metric.unit};
}

}  // namespace

BaselineFile make_baseline(const Results& results, const std::string& reason) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("run " + results.run.id + " cannot set a baseline: " + why);
  };
  if (reason.find_first_not_of(" \t\n") == std::string::npos) refuse("--reason is empty");
  if (results.verdict.word.starts_with("NO-GO"))
    refuse("its verdict is " + results.verdict.word + ", " + results.verdict.rule);
  if (!results.deviations.empty())
    refuse("it deviates from its runbook: " + results.deviations.front().what);
  BaselineFile file;
  file.runbook = results.run.runbook;
  file.hardware = hardware_of(results.environment);
  const auto build = results.environment.value("/build/build_id"_json_pointer, nlohmann::json());
  if (!build.is_string() || build.get<std::string>().empty()) refuse("its build is not known");
  file.build_id = build.get<std::string>();
  file.reason = reason;
  for (const Metric& metric : results.metrics)
    if (can_be_baseline(metric)) file.metrics.push_back(baseline_metric(metric));
  if (file.metrics.empty()) refuse("it holds no time, rate or memory");
  return file;
}

std::string promotion_text(const BaselineSet& before, const BaselineFile& now) {
  std::string text;
  std::map<std::string, double> gone = before.values;
  for (const BaselineMetric& metric : now.metrics) {
    const auto old = before.values.find(metric.metric);
    text += "  " + base::plain_text(metric.metric) + ": " +
            (old == before.values.end() ? "new" : format_value(old->second, metric.unit)) + " -> " +
            format_value(metric.value, metric.unit) + "\n";
    gone.erase(metric.metric);
  }
  for (const auto& [name, value] : gone)
    text += "  " + base::plain_text(name) + ": " + format_number(value) + " -> gone\n";
  return text;
}

}  // namespace harness
