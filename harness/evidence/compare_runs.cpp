#include "harness/evidence/compare_runs.h"

#include <algorithm>
#include <set>

#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/revision.h"
#include "harness/results/number.h"

namespace harness {
namespace {

using nlohmann::json;

const Metric* find_metric(const Results& results, const std::string& name) {
  const auto found = std::ranges::find(results.metrics, name, &Metric::name);
  return found == results.metrics.end() ? nullptr : &*found;
}

/// "1.04 [0.98, 1.1]": B over A, with the widest interval that the two allow.
std::string ratio_text(const Metric* a, const Metric* b) {
  const auto usable = [](const Metric* m) { return m != nullptr && m->withheld.empty(); };
  if (!usable(a) || !usable(b) || a->unit != b->unit || a->unit == "bool") return "–";
  const double of_a = a->value.value_or(0), of_b = b->value.value_or(0);
  if (!(of_a > 0 && of_b > 0)) return "–";
  std::string text = format_number(of_b / of_a);
  if (a->lo && a->hi && b->lo && b->hi && *a->lo > 0 && *b->lo > 0)
    text += " " + format_interval(*b->lo / *a->hi, *b->hi / *a->lo);
  return text;
}

json facts_table(const Results& a, const Results& b) {
  const auto text = [](const Results& r, const char* pointer) {
    const json::json_pointer at(pointer);
    if (!r.environment.contains(at)) return std::string("–");
    const json& value = r.environment.at(at);
    return value.is_string() && !value.get<std::string>().empty() ? value.get<std::string>()
                                                                  : std::string("–");
  };
  json rows = json::array();
  const auto add = [&](const char* what, const std::string& of_a, const std::string& of_b) {
    rows.push_back({what, of_a, of_b, of_a == of_b ? "same" : "differs"});
  };
  add("run", a.run.id, b.run.id);
  add("runbook", a.run.runbook, b.run.runbook);
  add("effective runbook", a.run.runbook_sha256.substr(0, 12), b.run.runbook_sha256.substr(0, 12));
  add("verdict", a.verdict.word, b.verdict.word);
  add("hardware", hardware_key(a.environment), hardware_key(b.environment));
  add("build id", text(a, "/build/build_id"), text(b, "/build/build_id"));
  add("commit", text(a, "/git/commit"), text(b, "/git/commit"));
  add("seed", std::to_string(a.run.seed), std::to_string(b.run.seed));
  return {{"id", "runs"},
          {"title", "The two runs"},
          {"phase", ""},
          {"columns", {"what", "A", "B", ""}},
          {"rows", rows}};
}

json figures_table(const Results& a, const Results& b) {
  std::set<std::string> names;
  for (const Results* each : {&a, &b})
    for (const Metric& metric : each->metrics) names.insert(metric.name);
  json rows = json::array();
  for (const std::string& name : names) {
    const Metric *of_a = find_metric(a, name), *of_b = find_metric(b, name);
    rows.push_back({"M-" + name, figure_text(of_a), figure_text(of_b), ratio_text(of_a, of_b),
                    figure_change(of_a, of_b)});
  }
  return {{"id", "figures"},
          {"title", "Figure by figure, with intervals at the level of the verdict"},
          {"phase", ""},
          {"columns", {"figure", "A", "B", "B / A", "B is"}},
          {"rows", rows}};
}

}  // namespace

std::string hardware_difference(const Results& a, const Results& b) {
  const std::string of_a = hardware_key(a.environment), of_b = hardware_key(b.environment);
  return of_a == of_b ? "" : "A ran on " + of_a + ", B on " + of_b;
}

std::string figure_change(const Metric* a, const Metric* b) {
  if (a == nullptr) return b == nullptr ? "no figure" : "new";
  if (b == nullptr) return "gone";
  if (!a->withheld.empty() || !b->withheld.empty()) return "withheld";
  if (!a->value || !b->value) return "no figure";
  if (a->unit != b->unit) return "other unit";
  if (a->method != b->method) return "other method";
  if (a->lo && a->hi && b->lo && b->hi) {
    if (*b->lo > *a->hi) return "higher";
    return *b->hi < *a->lo ? "lower" : "not told apart";
  }
  if (*b->value == *a->value) return "equal";
  if (a->method != "exact") return "not told apart";
  return *b->value > *a->value ? "higher" : "lower";
}

std::vector<json> comparison_tables(const Results& a, const Results& b) {
  json criteria = criteria_table(a, b, "A", "B");
  criteria["id"] = "criteria";
  criteria["title"] = "Criterion by criterion";
  return {facts_table(a, b), criteria, figures_table(a, b)};
}

}  // namespace harness
