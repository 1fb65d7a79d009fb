// Every criterion: those that decide by question, the least room first; the rest folded.
#include <algorithm>
#include <cmath>
#include <set>

#include "reports/answers.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"

namespace reports {

using harness::CriterionResult;
using harness::CriterionVerdict;

namespace {

constexpr size_t kMostWeighed = 60;  // all of them stand in the fold below

/// Passes of counts, yes or no, and what is for information are folded; what a reader weighs is
/// not.
bool is_weighed(const CriterionResult& c) {
  if (c.verdict == CriterionVerdict::kNotEvaluated) return false;  // stands above, by step
  if (c.severity == harness::Severity::kInfo) return c.verdict == CriterionVerdict::kFail;
  return c.verdict != CriterionVerdict::kPass || std::isfinite(relative_room(c));
}

std::vector<const CriterionResult*> by_room(std::vector<const CriterionResult*> criteria) {
  std::ranges::stable_sort(criteria, {}, [](const CriterionResult* c) {
    const bool pass = c->verdict == CriterionVerdict::kPass;
    return std::pair(pass, pass ? relative_room(*c) : 0.0);
  });
  return criteria;
}

void add(const Model& model, const CriterionResult& c, const std::string& question, Table& table) {
  const bool information = c.severity == harness::Severity::kInfo;
  table.add({status_text(c.verdict) + (information ? " (information)" : ""),
             escape(c.text) + " " + code(c.id), threshold_text(c), measured_text(model, c),
             room_text(c), question});
}

std::string weighed(const Model& model) {
  Table table({"verdict", "criterion", "required", "measured", "room>", "question"});
  std::set<const CriterionResult*> shown;
  for (const Answered& one : answered(model))
    for (const CriterionResult* c : by_room(one.criteria))
      if (is_weighed(*c) && shown.insert(c).second) add(model, *c, code(one.id), table);
  for (const CriterionResult* c : model.criteria)
    if (is_weighed(*c) && shown.insert(c).second) add(model, *c, "–", table);
  return table.empty() ? "No criterion that decides is on a measured scale.\n\n"
                       : table.markdown(kMostWeighed);
}

/// All of them, with where their figure and their threshold come from.
std::string every_criterion(const Model& model) {
  Table table({"verdict", "criterion", "severity", "required", "measured", "n>", "because",
               "threshold from", "evidence"});
  for (const CriterionResult* c : model.criteria) {
    const harness::Metric* metric = model.metric(c->metric);
    const std::string files = evidence_text(model, metric);
    table.add({status_text(c->verdict), code(c->id) + " " + escape(c->text),
               std::string(harness::enum_name(c->severity)), threshold_text(*c),
               measured_text(model, *c), metric ? std::to_string(metric->n) : "–",
               escape(c->reason),
               c->threshold_source == "runbook" ? "the plan" : escape(c->threshold_source),
               code("M-" + c->metric) + (files.empty() ? "" : " " + files)});
  }
  return table.markdown();
}

}  // namespace

std::string criteria_section(const Model& model) {
  const std::string out = "## Acceptance criteria\n\n";
  if (model.criteria.empty())
    return out + "**The runbook has no criteria: nothing was decided.**\n\n";
  return out +
         "What decides and is measured, and what did not pass, by question, the least room "
         "first. Intervals are at the level of the verdict (99 %); a measured figure passes by "
         "the bound nearer to the threshold, never by its estimate.\n\n" +
         weighed(model) +
         folded("All " + std::to_string(model.criteria.size()) +
                    " criteria, with counts, information rows and evidence",
                every_criterion(model));
}

}  // namespace reports
