#include <cmath>
#include <set>

#include "harness/runbook/args.h"
#include "harness/runbook/check.h"
#include "harness/runbook/check_at.h"

namespace harness {
namespace {

using nlohmann::json;

void check_arg(const Source& source, const json& document, const ArgSpec& arg) {
  const std::string what = "argument " + in_quotes(arg.name);
  require_one_of(source, at(document, "type"), what + ": type", arg.type, arg_types());
  const std::string problem = arg_type_problem(arg.type, arg.value);
  require(source, at(document, "default"), problem.empty(), what + ": default " + problem);
  require(
      source, at(document, "unit"), arg.unit.empty() || contains(metric_units(), arg.unit),
      what + ": unit must be one of " + joined(metric_units()) + ", got " + in_quotes(arg.unit));
}

/// How many arms the estimator takes.
size_t arms_of(const std::string& estimator) {
  if (estimator == "paired_ratio") return 2;
  return estimator == "arm_median" ? 1 : 0;
}

void check_metric(const Source& source, const json& document, const MetricSpec& metric) {
  const std::string what = "metric " + in_quotes(metric.name);
  require_one_of(source, at(document, "unit"), what + ": unit", metric.unit, metric_units());
  const std::string problem = metric_name_problem(metric.name, metric.unit, /*with_phase=*/false);
  require(source, at(document, "name"), problem.empty(), what + " " + problem);
  require_one_of(source, at(document, "estimator"), what + ": estimator", metric.estimator,
                 known_estimators());
  if (!metric.device.empty())
    require_one_of(source, at(document, "device"), what + ": device", metric.device,
                   device_names());
  const size_t arms = arms_of(metric.estimator);
  require(source, at(document, "arms"), metric.arms.size() == arms,
          what + ": " + metric.estimator + " takes " + std::to_string(arms) + " arms, got " +
              std::to_string(metric.arms.size()));
}

/// Checks the items of list `key` with `check` and that no name is given twice.
template <class T, class F>
void check_named(const Source& source, const json& document, const char* key,
                 const std::vector<T>& items, F check) {
  std::set<std::string> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    const json& item = document.at(key)[i];
    require(source, at(item, "name"), seen.insert(items[i].name).second,
            std::string(key) + ": " + in_quotes(items[i].name) + " is declared twice; remove one");
    check(source, item, items[i]);
  }
}

}  // namespace

void check_kind(const Source& source, const json& document, const KindSpec& kind,
                const std::string& stem) {
  require(source, at(document, "kind"), kind.kind == stem,
          "kind " + in_quotes(kind.kind) + " must be named like its file, '" + stem + "'");
  require_one_of(source, at(document, "program"), "program", kind.program, program_names());
  require_one_of(source, at(document, "mode"), "mode", kind.mode, worker_modes());
  require(source, at(document, "minutes"), std::isfinite(kind.minutes) && kind.minutes > 0,
          "minutes must be above 0");
  check_named(source, document, "args", kind.args, check_arg);
  check_named(source, document, "metrics", kind.metrics, check_metric);
}

}  // namespace harness
