#include <cmath>
#include <set>

#include "harness/runbook/checks/args.h"
#include "harness/runbook/checks/check.h"
#include "harness/runbook/checks/check_at.h"

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
  if (estimator == "paired_ratio" || estimator == "paired_overhead") return 2;
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

/// A table whose rows do not fit its columns, or that names a figure the kind lacks, would only
/// show in the report.
void check_table(const Source& source, const json& document, const KindTable& table,
                 const KindSpec& kind) {
  const std::string what = "table " + in_quotes(table.id) + ": ";
  std::vector<std::string> names;
  for (const MetricSpec& metric : kind.metrics) names.push_back(metric.name);
  require(source, at(document, "id"), is_plain_name(table.id),
          what + "the id must be lower case letters, digits and _");
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const json& row = document.at("rows")[i];
    require(source, row, table.rows[i].size() == table.columns.size(),
            what + "a row has " + std::to_string(table.rows[i].size()) + " cells, want " +
                std::to_string(table.columns.size()));
    for (size_t j = 0; j < table.rows[i].size(); ++j) {
      const std::string& cell = table.rows[i][j];
      if (!cell.starts_with("=")) continue;
      const std::string name = cell.substr(1);
      require(source, row[j], contains(names, name),
              what + "no metric " + in_quotes(name) + did_you_mean(name, names));
    }
  }
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
  for (size_t i = 0; i < kind.tables.size(); ++i)
    check_table(source, document.at("tables")[i], kind.tables[i], kind);
}

}  // namespace harness
