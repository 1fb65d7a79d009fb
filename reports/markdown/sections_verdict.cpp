#include <algorithm>
#include <cmath>
#include <map>

#include "harness/results/number.h"
#include "harness/results/runbook_notice.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"
#include "reports/markdown/table.h"

namespace reports {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::Metric;
using harness::PhaseResult;
using harness::StepStatus;

namespace {

std::string step_result(const PhaseResult& phase) {
  return status_text(phase.status) + (phase.cause.empty() ? "" : " " + code(phase.cause));
}

std::string cases_text(const PhaseResult& phase) {
  if (phase.cases_planned == 0 && phase.cases_ok == 0) return "–";
  return std::to_string(phase.cases_ok) + " of " + std::to_string(phase.cases_planned);
}

/// Figure with its verdict interval: "1.72 [1.62, 1.81]".
std::string observed_text(const CriterionResult& c, const Metric* metric) {
  if (metric == nullptr) return "**none**";
  if (!metric->value) return figure_text(*metric);
  const double against = c.threshold.value_or(*metric->value);
  std::string text = escape(harness::format_apart(*metric->value, against, c.unit).first);
  if (metric->lo && metric->hi) text += " " + harness::format_interval(*metric->lo, *metric->hi);
  return text;
}

std::string margin_text(const CriterionResult& c) {
  if (!c.margin || c.unit == "bool" || c.op == "==") return "–";
  std::string text = harness::format_value(*c.margin, c.unit);
  if (*c.margin > 0) text.insert(0, "+");
  const double percent =
      c.threshold && *c.threshold != 0 ? 100 * *c.margin / std::abs(*c.threshold) : HUGE_VAL;
  if (std::abs(percent) < 1000) text += " (" + harness::format_number(percent, 3) + " %)";
  return escape(text);
}

void add_criterion(const Model& model, const CriterionResult& c, Table& table) {
  const Metric* metric = model.metric(c.metric);
  const std::string files = evidence_text(model, metric);
  table.add({status_text(c.verdict), code(c.id) + " " + escape(c.text),
             std::string(harness::enum_name(c.severity)), threshold_text(c),
             observed_text(c, metric), metric ? std::to_string(metric->n) : "–", margin_text(c),
             code("M-" + c.metric) + (files.empty() ? "" : " " + files)});
}

/// What to act on now, in a line; the section Findings has cause and action.
std::string urgent_text(const Model& model) {
  constexpr size_t kNamed = 4;
  std::string names;
  size_t urgent = 0;
  for (const harness::Finding& finding : model.results.findings)
    if (finding.priority == harness::Priority::kImmediate && urgent++ < kNamed)
      names += (names.empty() ? "" : ", ") + code(finding.code) + " " + code(finding.id);
  if (urgent == 0) return "- **Immediate findings:** none\n";
  return "- **Immediate findings:** " + std::to_string(urgent) + ": " + names +
         (urgent > kNamed ? ", ..." : "") + "\n";
}

/// "2 FASTER, 1 EQUIVALENT"; nothing without comparisons.
std::string comparisons_text(const Model& model) {
  std::map<std::string, size_t> count;
  for (const Metric* m : model.comparisons)
    ++count[!m->withheld.empty() ? "withheld" : m->verdict.empty() ? "none" : m->verdict];
  std::string text;
  for (const auto& [verdict, n] : count)
    text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + escape(verdict);
  return text.empty() ? "" : "- **A/B comparisons:** " + text + "\n";
}

}  // namespace

std::string headline_facts(const Model& model) {
  const harness::Verdict& v = model.results.verdict;
  std::string out = "- **Verdict: " + escape(v.word) + "**, exit code " + std::to_string(v.exit) +
                    ". Rule that fired: " + escape(v.rule, 2000) + ".\n";
  out += "- **Weakest point:** " + escape(v.weakest, 2000) + "\n";
  out += "- **Scope:** " + (v.scope.empty() ? "the runbook states none" : escape(v.scope, 2000)) +
         "\n";
  out += "- **Criteria:** " + criteria_counts(model) + ". **Steps:** " + steps_counts(model) + ".";
  if (!model.results.deviations.empty())
    out += " **Deviations:** " + std::to_string(model.results.deviations.size()) + ".";
  return out + "\n" + urgent_text(model) + comparisons_text(model) + "\n";
}

std::string runbook_line(const Model& model) {
  const std::string notice = harness::runbook_notice(model.results);
  return notice.empty() ? "" : "**" + escape(notice) + "**\n\n";
}

std::string headline(const Model& model) {
  const harness::Results& r = model.results;
  std::string out = runbook_line(model);
  if (model.advisory_changed_exit())
    out += "**The advisory gate turned this run's exit code into 0. Its verdict is " +
           escape(r.verdict.word) + ".**\n\n";
  out += "# " + status_text(r.verdict) + " — " +
         escape(r.run.runbook_title.empty() ? r.run.runbook : r.run.runbook_title) +
         "\n\n## Executive summary\n\n";
  out += headline_facts(model);
  if (!r.verdict.conditions.empty()) {
    out += "**Conditions of this verdict:**\n\n";
    for (const std::string& condition : r.verdict.conditions)
      out += "- " + escape(condition, 2000) + "\n";
    out += "\n";
  }
  return out;
}

std::string steps_section(const Model& model, size_t max_completed) {
  Table table(
      {"result", "step", "what it shows", "ran", "required", "cases ok", "time>", "tries>", "why"});
  size_t completed = 0;
  for (const PhaseResult& p : model.results.phases) {
    if (p.status == StepStatus::kCompleted && completed++ >= max_completed) continue;
    table.add({step_result(p), code(p.id), escape(p.title), code(p.run),
               std::string(harness::enum_name(p.required)), cases_text(p),
               p.attempts > 0 ? harness::format_duration(p.seconds) : "–",
               p.attempts > 0 ? std::to_string(p.attempts) : "–", escape(p.reason)});
  }
  std::string out = "## Steps\n\n";
  out += model.results.phases.empty() ? "**No step was planned.**\n\n" : table.markdown();
  if (completed > max_completed)
    out += "Not shown here: " + std::to_string(completed - max_completed) +
           " COMPLETED steps; report.md has them.\n\n";
  return out;
}

namespace {

/// Criteria by where their threshold comes from, in the order of the table.
std::string threshold_sources(const Model& model) {
  std::vector<std::pair<std::string, std::string>> by_source;
  for (const CriterionResult* c : model.criteria) {
    const std::string& source = c->threshold_source;
    if (source.empty() || source == "runbook") continue;
    const auto known =
        std::ranges::find(by_source, source, &decltype(by_source)::value_type::first);
    if (known == by_source.end()) {
      by_source.emplace_back(source, code(c->id));
    } else {
      known->second += ", " + code(c->id);
    }
  }
  if (by_source.empty()) return "";
  std::string out = "Where thresholds come from (counts and yes or no: from the plan):\n\n";
  for (const auto& [source, ids] : by_source) out += "- " + escape(source) + ": " + ids + "\n";
  return out + "\n";
}

}  // namespace

std::string criteria_section(const Model& model, size_t max_open, size_t max_passed) {
  Table table(
      {"verdict", "criterion", "severity", "threshold", "observed", "n>", "margin", "evidence"});
  std::string reasons;
  size_t open = 0, passed = 0;
  for (const CriterionResult* c : model.criteria) {
    const bool pass = c->verdict == CriterionVerdict::kPass;
    if (pass ? passed++ >= max_passed : open++ >= max_open) continue;
    add_criterion(model, *c, table);
    if (!pass)
      reasons += "- " + code(c->id) + " " + std::string(harness::enum_name(c->verdict)) + ": " +
                 escape(c->reason) + "\n";
  }
  std::string out = "## Acceptance criteria\n\n";
  if (model.criteria.empty())
    return out + "**The runbook has no criteria: nothing was decided.**\n\n";
  out += table.markdown();
  out +=
      "Intervals are at the level of the verdict (99 %); a measured figure passes by the bound "
      "nearer to the threshold, never by its estimate.\n\n";
  if (!reasons.empty()) out += "Why these did not pass:\n\n" + reasons + "\n";
  if (max_passed >= model.criteria.size()) out += threshold_sources(model);
  const auto left_out = [&](size_t all, size_t limit, const char* what) {
    if (all > limit)
      out += "Not shown here: " + std::to_string(all - limit) + " " + what +
             "; report.md has them.\n\n";
  };
  left_out(open, max_open, "criteria that did not pass");
  left_out(passed, max_passed, "criteria that PASS");
  return out;
}

}  // namespace reports
