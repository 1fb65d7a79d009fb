#include <cmath>
#include <set>

#include "harness/runbook/checks/args.h"
#include "harness/runbook/checks/check.h"
#include "harness/runbook/checks/check_at.h"
#include "harness/runbook/metric_families.h"

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
  return estimator == "paired_ratio" || estimator == "paired_overhead" ? 2 : 0;
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

/// The list that a text refers to, if any, exists.
void check_list(const Source& source, const json& at, const std::string& what,
                const std::string& text, const KindSpec& kind) {
  const std::string list = list_named_in(text);
  std::vector<std::string> names;
  for (const auto& [name, words] : kind.lists) names.push_back(name);
  require(source, at, list.empty() || contains(names, list),
          what + "no list " + in_quotes(list) + " in this kind" + did_you_mean(list, names));
}

/// Lists have plain words, each once, and a metric that is named by them.
void check_lists(const Source& source, const json& document, const KindSpec& kind) {
  for (const auto& [name, words] : kind.lists) {
    const std::string what = "list " + in_quotes(name) + ": ";
    const json& place = at(document.at("lists"), name);
    require(source, place, !words.empty(), what + "no words");
    for (const std::string& word : words)
      require(source, place, is_plain_name("w" + word),
              what + in_quotes(word) + " must be lower case letters, digits and _");
    require(source, place, std::set<std::string>(words.begin(), words.end()).size() == words.size(),
            what + "a word is given twice");
    bool used = false;
    for (const MetricSpec& metric : kind.metrics) used |= list_named_in(metric.name) == name;
    require(source, place, used, what + "no metric is named by {" + name + "}; remove it");
  }
}

/// The metrics, families written out, each with the position of its pattern.
void check_metrics(const Source& source, const json& document, const KindSpec& kind) {
  std::set<std::string> seen;
  for (size_t i = 0; i < kind.metrics.size(); ++i) {
    const json& item = document.at("metrics")[i];
    check_list(source, at(item, "name"), "metric " + in_quotes(kind.metrics[i].name) + ": ",
               kind.metrics[i].name, kind);
    for (const MetricSpec& metric : expand(kind.metrics[i], kind.lists)) {
      require(source, at(item, "name"), seen.insert(metric.name).second,
              "metrics: " + in_quotes(metric.name) + " is declared twice; remove one");
      check_metric(source, item, metric);
    }
  }
}

/// A table whose rows do not fit its columns, or that names a figure the kind lacks, would only
/// show in the report.
void check_table(const Source& source, const json& document, const KindTable& table,
                 const KindSpec& kind) {
  const std::string what = "table " + in_quotes(table.id) + ": ";
  std::vector<std::string> names;
  for (const MetricSpec& metric : expand(kind).metrics) names.push_back(metric.name);
  require(source, at(document, "id"), is_plain_name(table.id),
          what + "the id must be lower case letters, digits and _");
  for (size_t i = 0; i < table.rows.size(); ++i) {
    const json& row = document.at("rows")[i];
    require(source, row, table.rows[i].size() == table.columns.size(),
            what + "a row has " + std::to_string(table.rows[i].size()) + " cells, want " +
                std::to_string(table.columns.size()));
    for (size_t j = 0; j < table.rows[i].size(); ++j)
      check_list(source, row[j], what, table.rows[i][j], kind);
    for (const auto& cells : expand(table.rows[i], kind.lists))
      for (size_t j = 0; j < cells.size(); ++j) {
        if (!cells[j].starts_with("=")) continue;
        const std::string name = cells[j].substr(1);
        if (!contains(names, name))
          source.fail(row[j], what + "no metric " + in_quotes(name) + did_you_mean(name, names));
      }
  }
}

/// A setting of no arm would never be recommended.
void check_settings(const Source& source, const json& document, const KindSpec& kind) {
  if (kind.settings.empty()) return;
  const json& places = document.at("settings");
  for (const auto& [arm, setting] : kind.settings) {
    const std::string what = "setting of " + in_quotes(arm) + ": ";
    check_list(source, places.at(arm), what, arm, kind);
    require(source, places.at(arm), !setting.empty(),
            what + "empty; name what is set, or remove it");
  }
  std::vector<std::string> arms;
  for (const MetricSpec& metric : expand(kind).metrics)
    arms.insert(arms.end(), metric.arms.begin(), metric.arms.end());
  for (const auto& [arm, setting] : kind.settings) {
    KindSpec one = kind;
    one.settings = {{arm, setting}};
    for (const auto& [name, text] : expand(one).settings)
      require(source, places.at(arm), contains(arms, name),
              "setting of " + in_quotes(name) + ": no metric compares such an arm" +
                  did_you_mean(name, arms));
  }
}

void check_args(const Source& source, const json& document, const KindSpec& kind) {
  std::set<std::string> seen;
  for (size_t i = 0; i < kind.args.size(); ++i) {
    const json& item = document.at("args")[i];
    require(source, at(item, "name"), seen.insert(kind.args[i].name).second,
            "args: " + in_quotes(kind.args[i].name) + " is declared twice; remove one");
    check_arg(source, item, kind.args[i]);
  }
}

}  // namespace

void check_kind(const Source& source, const json& document, const KindSpec& kind,
                const std::string& stem) {
  require(source, at(document, "kind"), kind.kind == stem,
          "kind " + in_quotes(kind.kind) + " must be named like its file, '" + stem + "'");
  require_one_of(source, at(document, "program"), "program", kind.program, program_names());
  if (!kind.device.empty())
    require_one_of(source, at(document, "device"), "device", kind.device, device_names());
  require_one_of(source, at(document, "mode"), "mode", kind.mode, worker_modes());
  require(source, at(document, "minutes"), std::isfinite(kind.minutes) && kind.minutes > 0,
          "minutes must be above 0");
  check_args(source, document, kind);
  check_lists(source, document, kind);
  check_metrics(source, document, kind);
  check_settings(source, document, kind);
  for (size_t i = 0; i < kind.tables.size(); ++i)
    check_table(source, document.at("tables")[i], kind.tables[i], kind);
}

}  // namespace harness
