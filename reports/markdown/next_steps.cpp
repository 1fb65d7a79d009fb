// What to do after the run, each with the command that decides it.
#include <algorithm>
#include <set>

#include "harness/results/missing_hardware.h"
#include "reports/answers.h"
#include "reports/escape.h"
#include "reports/markdown/sections.h"

namespace reports {

using harness::CriterionResult;
using harness::CriterionVerdict;
using harness::PhaseResult;
using harness::StepStatus;

namespace {

struct Step {
  std::string text;     ///< Markdown
  std::string command;  ///< plain
};

std::string again(const Model& model, const std::string& phase) {
  return "nsa-validate --runbook " + shell_word(plain(model.results.run.runbook)) + " --only " +
         shell_word(plain(phase));
}

/// An A/B that used up its processes and is still open is decided by twice as many.
std::string with_more_samples(const Model& model, const CriterionResult& open) {
  const harness::Metric* metric = model.metric(open.metric);
  const bool compares = std::ranges::find(model.comparisons, metric) != model.comparisons.end();
  if (!compares) return again(model, open.phase);
  return again(model, open.phase) + " --set " + shell_word(plain(open.phase)) +
         ".max_processes=" + std::to_string(2 * metric->n);
}

/// Samples of arms at different clocks stay undecided, however many there are.
bool is_throttled(const Model& model, const CriterionResult& open) {
  return std::ranges::any_of(model.results.findings, [&](const harness::Finding& f) {
    return f.code == "THROTTLED" && f.fact == "M-" + open.metric;
  });
}

/// "`C-a`, `C-b` and 3 more"
std::string named(const std::vector<const CriterionResult*>& criteria) {
  constexpr size_t kShown = 2;
  std::string text;
  for (size_t i = 0; i < std::min(criteria.size(), kShown); ++i)
    text += (i > 0 ? ", " : "") + code(criteria[i]->id);
  if (criteria.size() > kShown)
    text += " and " + std::to_string(criteria.size() - kShown) + " more";
  return text;
}

std::vector<const CriterionResult*> of_phase(const Model& model, const std::string& phase,
                                             CriterionVerdict verdict) {
  auto own = model.criteria_of(phase);
  std::erase_if(own, [&](const auto* c) {
    return c->verdict != verdict || c->severity == harness::Severity::kInfo;
  });
  return own;
}

void add_failed(const Model& model, const PhaseResult& phase, std::vector<Step>& steps) {
  if (const auto failed = of_phase(model, phase.name, CriterionVerdict::kFail); !failed.empty())
    steps.push_back({"**Explain** " + named(failed) + ": what was measured, from which files",
                     "nsa-validate explain " + shell_word(plain(failed.front()->id))});
  if (phase.status == StepStatus::kFailed)
    steps.push_back({"**Mend step** " + code(phase.id) + ": " + escape(phase.reason, 300),
                     again(model, phase.name)});
}

/// No further run decides what lacks a baseline, until one that may set it is promoted.
void take_without_baseline(const Model& model, std::vector<const CriterionResult*>& missing,
                           std::vector<Step>& steps) {
  std::vector<const CriterionResult*> open;
  for (const CriterionResult* one : missing)
    if (one->reason.starts_with("BASELINE_INVALID")) open.push_back(one);
  if (open.empty()) return;
  std::erase_if(missing,
                [&](const auto* one) { return std::ranges::find(open, one) != open.end(); });
  const bool may_set = model.results.deviations.empty();
  steps.push_back({"**Set a baseline** for " + named(open) +
                       (may_set ? " from this run, in its folder, if later ones are to be held"
                                  " against it"
                                : ", by a run without a deviation") +
                       ": " + escape(open.front()->reason, 200),
                   std::string("nsa-validate baseline promote ") + (may_set ? "." : "RUN") +
                       " --reason TEXT --write"});
}

void add_undecided(const Model& model, const PhaseResult& phase, std::vector<Step>& steps) {
  const auto open = of_phase(model, phase.name, CriterionVerdict::kInconclusive);
  if (!open.empty()) {
    const CriterionResult& first = *open.front();
    const std::string how = is_throttled(model, first)
                                ? " with locked clocks (those of its arms differed)"
                                : " with more samples";
    steps.push_back({"**Decide** " + named(open) + how + ": " + escape(first.reason, 200),
                     with_more_samples(model, first)});
  }
  // A step that ran, and of which a case broke off or left a figure out.
  auto missing = of_phase(model, phase.name, CriterionVerdict::kNotEvaluated);
  if (phase.status == StepStatus::kCompleted) take_without_baseline(model, missing, steps);
  if (phase.status == StepStatus::kCompleted && !missing.empty())
    steps.push_back({"**Decide** " + named(missing) + ": " + escape(missing.front()->reason, 300),
                     again(model, phase.name)});
  const bool deferred = phase.status == StepStatus::kDeferred && !harness::is_beyond_size(phase);
  if (deferred || phase.status == StepStatus::kPartial)
    steps.push_back({"**Run step** " + code(phase.id) + " (" + escape(phase.title, 120) +
                         "): " + escape(phase.reason, 300),
                     again(model, phase.name)});
}

/// Steps that --only and --skip left out are run by the whole runbook.
void add_left_out(const Model& model, std::vector<Step>& steps) {
  const auto left_out = std::ranges::count_if(model.results.phases, [](const PhaseResult& phase) {
    return phase.status == StepStatus::kNotRun && phase.cause == "SKIPPED" &&
           phase.required == harness::Required::kAlways;
  });
  if (left_out > 0)
    steps.push_back({"**Run** the " + std::to_string(left_out) +
                         (left_out == 1 ? " required step that was left out"
                                        : " required steps that were left out"),
                     "nsa-validate --runbook " + shell_word(plain(model.results.run.runbook))});
}

void add_findings(const Model& model, std::vector<Step>& steps) {
  std::set<std::string> listed;  // one cause shows in many places
  for (const harness::Finding& finding : model.results.findings)
    if (finding.priority == harness::Priority::kImmediate && !finding.action.empty() &&
        listed.insert(finding.code + finding.action).second)
      steps.push_back({"**" + escape(finding.code) + "**, shown by " + code(finding.fact) + ": " +
                           escape(finding.action, 300),
                       "nsa-validate explain " + shell_word(plain(finding.id))});
}

/// The criteria that a step is to decide all PASS already.
bool done(const Model& model, const harness::NextStep& step) {
  return !step.unless.empty() && all_pass(model, step.unless);
}

std::vector<Step> all_steps(const Model& model) {
  std::vector<Step> steps;
  for (const PhaseResult& phase : model.results.phases) add_failed(model, phase, steps);
  const bool failed = !steps.empty();  // what a finding may be the cause of
  if (failed) add_findings(model, steps);
  for (const PhaseResult& phase : model.results.phases) add_undecided(model, phase, steps);
  add_left_out(model, steps);
  for (const harness::NextStep& step : model.results.next_steps)
    if (!done(model, step)) steps.push_back({escape(step.text), step.command});
  if (!failed) add_findings(model, steps);
  return steps;
}

/// "Nothing is open" only where that is so.
std::string none_text(const Model& model) {
  if (std::ranges::any_of(model.results.phases, harness::is_beyond_size))
    return "None on this machine: what is open needs a larger one.";
  const bool all_passed = std::ranges::all_of(model.results.criteria, [](const CriterionResult& c) {
    return c.verdict == CriterionVerdict::kPass;
  });
  return all_passed ? "None: nothing is open." : "None: nothing that decides is open.";
}

}  // namespace

std::string next_steps_section(const Model& model, size_t max_rows) {
  const std::vector<Step> steps = all_steps(model);
  std::string out = "## Next steps\n\n";
  if (steps.empty()) return out + none_text(model) + "\n\n";
  for (size_t i = 0; i < std::min(steps.size(), max_rows); ++i) {
    out += std::to_string(i + 1) + ". " + steps[i].text;
    out += steps[i].command.empty() ? "\n" : ": " + code(steps[i].command) + "\n";
  }
  if (steps.size() > max_rows)
    out += "\nAnd " + std::to_string(steps.size() - max_rows) + " more: report.md has them.\n";
  return out + "\n";
}

}  // namespace reports
