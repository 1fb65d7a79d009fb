// The steps in the order of the run: an overview, then the results of each.
#include <algorithm>
#include <cmath>

#include "harness/results/number.h"
#include "reports/answers.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"
#include "reports/plots/plot.h"

namespace reports {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::PhaseResult;
using nlohmann::json;

namespace {

std::string cases_text(const PhaseResult& phase) {
  const bool only_itself = phase.cases_planned == 1 && phase.cases_ok == 1;
  if ((phase.cases_planned == 0 && phase.cases_ok == 0) || only_itself) return "";
  return std::to_string(phase.cases_ok) + " of " + std::to_string(phase.cases_planned) + " cases";
}

std::string measured_and_required(const Model& model, const CriterionResult& c) {
  return measured_text(model, c) + ", required " + threshold_text(c);
}

/// The figure that a reader weighs first: of what passed and is measured, the one with the least
/// margin; empty where a step only counts, or where one that did not pass stands in its place.
std::string telling_figure(const Model& model, const PhaseResult& phase) {
  const CriterionResult* least = nullptr;
  for (const CriterionResult* c : model.criteria_of(phase.name)) {
    if (c->severity == harness::Severity::kInfo) continue;
    if (c->verdict != CriterionVerdict::kPass) return "";
    if (!std::isfinite(relative_room(*c))) continue;
    if (least == nullptr || relative_room(*c) < relative_room(*least)) least = c;
  }
  return least == nullptr ? ""
                          : measured_and_required(model, *least) + " (" + code(least->id) + ")";
}

/// "5 of 5 criteria pass", "4 of 6 criteria pass; `C-x` FAIL: 1.2x, required ≥ 1.5; 1 more"
std::string criteria_text(const Model& model, const PhaseResult& phase) {
  const auto own = model.criteria_of(phase.name);
  if (own.empty()) return "";
  const auto passed = std::ranges::count_if(
      own, [](const auto* c) { return c->verdict == CriterionVerdict::kPass; });
  std::string text =
      std::to_string(passed) + " of " + std::to_string(own.size()) + " criteria pass";
  const auto other = static_cast<int64_t>(own.size()) - passed - 1;
  if (const CriterionResult& worst = *own.front(); worst.verdict != CriterionVerdict::kPass)
    text += "; " + code(worst.id) + " " + std::string(harness::enum_name(worst.verdict)) +
            (worst.verdict == CriterionVerdict::kNotEvaluated
                 ? ""
                 : ": " + measured_and_required(model, worst)) +
            (other > 0 ? "; " + std::to_string(other) + " more open or failed" : "");
  return text;
}

std::string result_text(const Model& model, const PhaseResult& phase) {
  std::string text = escape(phase.reason, 300);
  for (const std::string& part :
       {telling_figure(model, phase), criteria_text(model, phase), cases_text(phase)})
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  return text;
}

bool of_phase(const json& table, const std::string& phase) {
  return table.is_object() && table.contains("phase") && table["phase"] == phase;
}

/// What a step shows, the most telling first.
std::vector<std::string> parts_of(const Model& model, const std::vector<Plot>& plots,
                                  const std::string& phase) {
  std::vector<std::string> parts;
  std::vector<const harness::Metric*> own;
  std::ranges::copy_if(model.comparisons, std::back_inserter(own),
                       [&](const auto* m) { return m->phase == phase; });
  if (!own.empty()) parts.push_back(comparisons_table(own));
  if (std::string history = history_table(model, phase); !history.empty())
    parts.push_back(std::move(history));
  std::vector<const json*> tables;
  if (model.results.tables.is_array())
    for (const json& table : model.results.tables)
      if (of_phase(table, phase)) tables.push_back(&table);
  std::ranges::move(tables_markdown(tables), std::back_inserter(parts));
  const size_t at = std::min<size_t>(parts.size(), own.empty() ? 0 : 1);
  std::vector<std::string> drawn;
  for (const Plot& plot : plots)
    if (plot.phase == phase) drawn.push_back(plot_markdown(plot));
  parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(at), drawn.begin(), drawn.end());
  std::erase(parts, "");
  return parts;
}

/// The first `open` parts, the rest folded.
std::string shown(const std::vector<std::string>& parts, size_t open) {
  std::string out, more;
  for (size_t i = 0; i < parts.size(); ++i) (i < open ? out : more) += parts[i];
  if (parts.size() > open)
    out +=
        folded(std::to_string(parts.size() - open) + " more tables and plots of this step", more);
  return out;
}

}  // namespace

std::string steps_section(const Model& model) {
  Table table({"result", "step", "what it shows", "found", "time>"});
  for (const PhaseResult& p : model.results.phases)
    table.add({status_text(p.status) + (p.cause.empty() ? "" : " " + code(p.cause)), code(p.id),
               escape(p.title), result_text(model, p),
               p.attempts > 0 ? harness::format_duration(p.seconds) : "–"});
  return "## Steps\n\n" +
         (table.empty() ? std::string("**No step was planned.**\n\n") : table.markdown());
}

std::string results_section(const Model& model) {
  constexpr size_t kManySteps = 8;
  const std::vector<Plot> all = plots(model);
  std::vector<std::pair<const PhaseResult*, std::vector<std::string>>> steps;
  for (const PhaseResult& phase : model.results.phases)
    if (auto parts = parts_of(model, all, phase.name); !parts.empty())
      steps.emplace_back(&phase, std::move(parts));
  std::string out = "## Results, in the order of the run\n\n";
  if (steps.empty()) return out + "No step left a table, a comparison or a plot.\n\n";
  for (const Plot& plot : all)
    if (plot.phase.empty()) out += plot_markdown(plot);
  for (const auto& [phase, parts] : steps)
    out += "### " + escape(phase->title.empty() ? phase->name : phase->title) + "\n\n" +
           status_text(phase->status) + " " + code(phase->id) + ", ran " + code(phase->run) + ". " +
           criteria_text(model, *phase) + "\n\n" + shown(parts, steps.size() > kManySteps ? 1 : 2);
  return out;
}

}  // namespace reports
