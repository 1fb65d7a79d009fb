#include "harness/verdict/verdict.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>

#include "harness/results/missing_hardware.h"
#include "harness/results/number.h"

namespace harness {
namespace {

using Reasons = std::vector<std::string>;

/// Deviations of phases that were left out: the word PARTIAL stands for them.
constexpr std::string_view kLeftOutDeviation = "D-skip.";

/// The input with what several lines of the table ask for.
struct Facts {
  const VerdictInput& in;
  std::set<std::string> deferred_phases;  ///< if_hardware, DEFERRED for missing hardware
  std::set<std::string> beyond_size;      ///< by_size, DEFERRED: this machine has fewer GPUs
  std::set<std::string> left_out;         ///< by the user

  explicit Facts(const VerdictInput& input) : in(input) {
    for (const PhaseResult& phase : in.phases) {
      if (harness::lacks_hardware(phase)) deferred_phases.insert(phase.name);
      if (is_beyond_size(phase)) beyond_size.insert(phase.name);
      if (phase.status == StepStatus::kNotRun && phase.cause == "SKIPPED")
        left_out.insert(phase.name);
    }
  }

  bool lacks_hardware(const std::string& phase) const { return deferred_phases.contains(phase); }

  /// Not decided because its phase, or the one that measures its figure, was left out, or its phase
  /// needs more GPUs than this machine has.
  bool not_selected(const CriterionResult& c) const {
    return c.verdict == CriterionVerdict::kNotEvaluated &&
           (left_out.contains(c.phase) || beyond_size.contains(c.phase) ||
            left_out.contains(c.metric.substr(0, c.metric.find('.'))));
  }

  /// Required phases in one of the states, as "P-x FAILED (cause)".
  Reasons required_in(std::initializer_list<StepStatus> states) const {
    Reasons found;
    for (const PhaseResult& phase : in.phases) {
      if (phase.required == Required::kNo || lacks_hardware(phase.name)) continue;
      if (left_out.contains(phase.name) || beyond_size.contains(phase.name)) continue;
      if (std::ranges::find(states, phase.status) == states.end()) continue;
      found.push_back(phase.id + " " + std::string(enum_name(phase.status)) +
                      (phase.cause.empty() ? "" : " (" + phase.cause + ")"));
    }
    return found;
  }

  Reasons blockers_in(std::initializer_list<CriterionVerdict> states) const {
    Reasons found;
    for (const CriterionResult& c : in.criteria) {
      if (c.severity != Severity::kBlocker) continue;
      if (std::ranges::find(states, c.verdict) == states.end()) continue;
      if (c.verdict == CriterionVerdict::kNotEvaluated && lacks_hardware(c.phase)) continue;
      if (not_selected(c)) continue;
      found.push_back(c.id + " " + std::string(enum_name(c.verdict)));
    }
    return found;
  }
};

/// FAIL before INCONCLUSIVE before NOT_EVALUATED; PASS last.
int verdict_rank(CriterionVerdict verdict) {
  switch (verdict) {
    case CriterionVerdict::kFail:
      return 0;
    case CriterionVerdict::kInconclusive:
      return 1;
    case CriterionVerdict::kNotEvaluated:
      return 2;
    case CriterionVerdict::kPass:
      break;
  }
  return 3;
}

/// Margin as a fraction of the threshold; what is counted, exact equalities and zero thresholds
/// have none: 59 of 59 planned cases is as much as there can be.
std::optional<double> relative_margin(const CriterionResult& c) {
  if (!c.margin || !c.threshold || c.op == "==" || *c.threshold == 0 || c.unit == "bool" ||
      c.unit == "count")
    return std::nullopt;
  return *c.margin / std::abs(*c.threshold);
}

/// Smaller is weaker: blockers before majors before what is information only; what did not pass
/// before what did; then the smaller margin.
std::tuple<int, int, double, std::string> weakness(const CriterionResult& c) {
  const double margin = relative_margin(c).value_or(HUGE_VAL);
  const int rank = c.verdict == CriterionVerdict::kPass
                       ? verdict_rank(c.verdict) * 3
                       : static_cast<int>(c.severity) * 3 + verdict_rank(c.verdict);
  return {c.severity == Severity::kInfo ? 1 : 0, rank, std::isnan(margin) ? -HUGE_VAL : margin,
          c.id};
}

Reasons joined(Reasons a, const Reasons& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Reasons evidence_broken(const Facts& f) {
  return f.in.evidence_ok ? Reasons{} : Reasons{"the ledger or a hash does not match"};
}

Reasons faulted(const Facts& f) { return {f.in.faults.begin(), f.in.faults.end()}; }

Reasons failed(const Facts& f) {
  return joined(f.blockers_in({CriterionVerdict::kFail}), f.required_in({StepStatus::kFailed}));
}

Reasons not_run(const Facts& f) {
  Reasons found = f.required_in({StepStatus::kDeferred, StepStatus::kNotRun, StepStatus::kPartial});
  const bool any_completed = std::ranges::any_of(
      f.in.phases, [](const PhaseResult& p) { return p.status == StepStatus::kCompleted; });
  if (found.empty() && !any_completed) found.emplace_back("no phase was COMPLETED");
  return found;
}

Reasons undecided(const Facts& f) {
  Reasons found = f.blockers_in({CriterionVerdict::kInconclusive, CriterionVerdict::kNotEvaluated});
  const bool any_gate = std::ranges::any_of(
      f.in.criteria, [](const CriterionResult& c) { return c.severity != Severity::kInfo; });
  if (found.empty() && !any_gate) found.emplace_back("there is no blocker or major criterion");
  return found;
}

Reasons conditions(const Facts& f) {
  std::vector<const CriterionResult*> open;
  for (const CriterionResult& c : f.in.criteria) {
    const bool matters = c.severity == Severity::kMajor ||
                         (c.severity == Severity::kBlocker && f.lacks_hardware(c.phase));
    if (matters && c.verdict != CriterionVerdict::kPass && !f.not_selected(c)) open.push_back(&c);
  }
  std::ranges::stable_sort(open, {}, [](const CriterionResult* c) { return weakness(*c); });
  Reasons found;
  for (const CriterionResult* c : open)
    found.push_back(c->id + " " + std::string(enum_name(c->verdict)) + ": " + c->reason);
  for (const PhaseResult& p : f.in.phases)
    if (f.lacks_hardware(p.name))
      found.push_back(p.id + " DEFERRED (" + p.cause + "): this machine lacks the hardware");
  for (const Deviation& d : f.in.deviations)
    if (!d.id.starts_with(kLeftOutDeviation)) found.push_back(d.id + ": " + d.what);
  return found;
}

Reasons left_out(const Facts& f) {
  Reasons found;
  for (const std::string& phase : f.left_out) found.push_back("P-" + phase + " not selected");
  return found;
}

/// A run in part of which what was selected did not pass without conditions either.
Reasons left_out_with_conditions(const Facts& f) {
  const Reasons open = conditions(f), phases = left_out(f);
  return open.empty() || phases.empty() ? Reasons{} : joined(open, phases);
}

struct Line {
  Reasons (*matches)(const Facts&);  ///< not empty: this line decides, for these reasons
  const char* rule;
  const char* word;
  int exit;
};

/// docs/verdicts.md; the first line that matches wins.
constexpr Line kTable[] = {
    {evidence_broken, "evidence does not verify", "NO-GO (evidence)", 6},
    {faulted, "harness or machine fault", "NO-GO (fault)", 3},
    {failed, "a blocker FAILs, or a required phase FAILED", "NO-GO", 1},
    {not_run, "a required phase DEFERRED, NOT_RUN or PARTIAL", "NO-GO (undecided)", 5},
    {undecided, "a blocker INCONCLUSIVE or NOT_EVALUATED", "NO-GO (undecided)", 4},
    {left_out_with_conditions, "selected phases passed with conditions; no verdict on the runbook",
     "PARTIAL", 8},
    {left_out, "selected phases passed; no verdict on the runbook", "PARTIAL", 8},
    {conditions, "a major criterion not PASS, missing hardware, or a deviation", "CONDITIONAL GO",
     7},
};
constexpr int kConditional = 7;
constexpr int kPartial = 8;

bool is_advisory_mapped(int64_t exit) { return exit == 4 || exit == 5 || exit == 7; }

std::string list(const Reasons& reasons) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(reasons.size(), kShown); ++i)
    text += (i ? "; " : "") + reasons[i];
  if (reasons.size() > kShown) text += "; and " + std::to_string(reasons.size() - kShown) + " more";
  return text;
}

std::string weakest_sentence(const Facts& f) {
  const VerdictInput& in = f.in;
  const auto broken = std::ranges::find_if(in.phases, [](const PhaseResult& p) {
    return p.required != Required::kNo && p.status == StepStatus::kFailed;
  });
  const auto weakest = std::ranges::min_element(in.criteria, [&f](const auto& a, const auto& b) {
    return std::pair(f.not_selected(a), weakness(a)) < std::pair(f.not_selected(b), weakness(b));
  });
  const bool criterion_failed =
      weakest != in.criteria.end() && weakest->verdict == CriterionVerdict::kFail;
  if (broken != in.phases.end() && !criterion_failed)
    return broken->id + " FAILED: " + (broken->reason.empty() ? broken->cause : broken->reason);
  if (weakest == in.criteria.end()) return "no criterion was judged";
  std::string text =
      weakest->id + " " + std::string(enum_name(weakest->verdict)) + ": " + weakest->reason;
  if (const auto margin = relative_margin(*weakest);
      margin && weakest->verdict == CriterionVerdict::kPass)
    text += " (margin " + format_number(100 * *margin, 3) + " %)";
  return text;
}

/// The scope of the runbook, and for how many GPUs the verdict is where phases need more.
std::string scope(const Facts& f) {
  std::string text(f.in.scope);
  if (f.beyond_size.empty()) return text;
  std::string phases;
  for (const std::string& phase : f.beyond_size) phases += (phases.empty() ? "" : ", ") + phase;
  return text + " Decided for " + std::to_string(f.in.gpus) + (f.in.gpus == 1 ? " GPU" : " GPUs") +
         "; no statement about more (" + phases + ").";
}

}  // namespace

Verdict decide(const VerdictInput& input) {
  const Facts facts(input);
  Verdict verdict;
  verdict.word = "GO";
  verdict.exit = 0;
  verdict.rule = "every blocker and major criterion PASSes, every required phase COMPLETED";
  verdict.weakest = weakest_sentence(facts);
  verdict.scope = scope(facts);
  verdict.gate = input.gate;
  for (const Line& line : kTable) {
    const Reasons reasons = line.matches(facts);
    if (reasons.empty()) continue;
    verdict.word = line.word;
    verdict.exit = line.exit;
    verdict.rule = std::string(line.rule) + ": " + list(reasons);
    if (line.exit == kConditional || line.exit == kPartial) verdict.conditions = conditions(facts);
    break;
  }
  if (input.gate == "advisory" && is_advisory_mapped(verdict.exit)) {
    verdict.rule +=
        " (exit code " + std::to_string(verdict.exit) + " reported as 0: advisory gate)";
    verdict.exit = 0;
  }
  return verdict;
}

}  // namespace harness
