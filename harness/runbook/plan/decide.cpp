#include "harness/runbook/plan/decide.h"

#include <algorithm>

#include "harness/runbook/checks/names.h"
#include "harness/runbook/checks/require.h"

namespace harness {
namespace {

void set(PlannedPhase& phase, Decision decision, std::string_view cause, std::string reason) {
  phase.decision = decision;
  phase.cause = cause;
  phase.reason = std::move(reason);
}

/// The option that leaves the phase out; empty when none does.
std::string left_out_by(const std::string& id, const PhaseSelection& selection) {
  if (contains(selection.skip, id)) return "--skip " + id;
  if (!selection.only.empty() && !contains(selection.only, id) && !contains(selection.added, id))
    return "--only " + joined(selection.only);
  return "";
}

/// The first phase needed that does not run.
const PlannedPhase* missing_need(const std::vector<std::string>& before, const Plan& plan) {
  for (const PlannedPhase& other : plan.phases) {
    const bool runs =
        other.decision == Decision::kRun || other.decision == Decision::kRunWithDeviation;
    if (!runs && contains(before, other.id)) return &other;
  }
  return nullptr;
}

/// What the phase requires of the machine. Always required: its program is not known to be missing,
/// and on cuda every program needs a GPU, and srun an allocation.
std::map<std::string, nlohmann::json> requirements(const PhaseSpec& spec, const PlannedPhase& phase,
                                                   const Facts& facts) {
  auto all = spec.require;
  if (phase.program == "builtin") return all;
  if (phase.device == "cuda") all.try_emplace("gpu.count", ">=1");
  if (spec.launcher == "srun") all.try_emplace("slurm.nodes", ">=1");
  const std::string program = "program." + phase.program;
  if (facts.contains(program)) all.try_emplace(program, true);
  return all;
}

void follow_need(const PlannedPhase& need, PlannedPhase& phase) {
  const std::string why = "needs '" + need.id + "', which does not run: " + need.reason;
  if (need.decision == Decision::kDefer) {
    set(phase, Decision::kDefer, need.cause, why);
  } else if (need.cause == kCauseSkipped) {
    set(phase, Decision::kSkip, kCauseSkipped, why);
  } else {
    set(phase, Decision::kSkip, kCauseUpstream, why);
  }
}

void follow_unmet(const std::vector<Unmet>& unmet, OnUnmet on_unmet, Plan& plan,
                  PlannedPhase& phase) {
  std::string reasons;
  for (const Unmet& one : unmet) reasons += (reasons.empty() ? "" : "; ") + one.reason;
  switch (on_unmet) {
    case OnUnmet::kDefer:
      return set(phase, Decision::kDefer, unmet.front().cause, reasons);
    case OnUnmet::kFail:
      return set(phase, Decision::kFail, unmet.front().cause, reasons);
    case OnUnmet::kWarn:
      set(phase, Decision::kRunWithDeviation, "", reasons);
      plan.deviations.push_back({"D-require." + phase.id,
                                 "phase '" + phase.id + "' runs with an unmet requirement",
                                 reasons});
  }
}

}  // namespace

void decide_phase(const PhaseSpec& spec, const std::vector<std::string>& before, const Facts& facts,
                  const PhaseSelection& selection, Plan& plan, PlannedPhase& phase) {
  if (const std::string option = left_out_by(spec.id, selection); !option.empty()) {
    set(phase, Decision::kSkip, kCauseSkipped, "left out by " + option);
    plan.deviations.push_back(
        {"D-skip." + spec.id, "phase '" + spec.id + "' does not run", "left out by " + option});
    return;
  }
  std::vector<Unmet> unmet;
  for (const auto& [fact, want] : requirements(spec, phase, facts)) {
    Unmet one = check_requirement(fact, want, facts);
    if (!one.cause.empty()) unmet.push_back(std::move(one));
  }
  if (const PlannedPhase* need = missing_need(before, plan)) {
    follow_need(*need, phase);
  } else if (!unmet.empty()) {
    follow_unmet(unmet, spec.on_unmet, plan, phase);
  }
}

}  // namespace harness
