#include "harness/runbook/plan/plan.h"

#include <algorithm>
#include <cstdio>

#include "harness/runbook/checks/names.h"
#include "harness/runbook/checks/require.h"
#include "harness/runbook/plan/decide.h"
#include "harness/runbook/plan/graph.h"
#include "harness/schema/error.h"
#include "harness/schema/parse/nearest.h"

namespace harness {
namespace {

using nlohmann::json;

std::string group_name(const char* letter, int64_t index) {
  char name[24];
  std::snprintf(name, sizeof name, "%s%02lld", letter, static_cast<long long>(index) + 1);
  return name;
}

PlannedGroup planned_group(const PhaseSpec& spec, const Runbook& runbook, std::string id) {
  const int64_t seed = group_seed(runbook.seed, spec.id, id);
  return {std::move(id), seed};
}

/// Looks at twice the processes each, as far as the budget goes; then a confirmation that can be as
/// long as all looks together.
std::vector<PlannedStage> further_stages(const PhaseSpec& spec, const Runbook& runbook) {
  std::vector<PlannedStage> stages;
  int64_t planned = spec.processes;
  for (; 2 * planned <= spec.max_processes; planned *= 2) {
    auto& look = stages.emplace_back(
        PlannedStage{.id = "look" + std::to_string(stages.size() + 2), .groups = {}});
    for (int64_t i = planned; i < 2 * planned; ++i)
      look.groups.push_back(planned_group(spec, runbook, group_name("g", i)));
  }
  if (!spec.confirm) return stages;
  auto& confirm = stages.emplace_back(PlannedStage{.id = std::string(kConfirmStage), .groups = {}});
  for (int64_t i = 0; i < planned; ++i)
    confirm.groups.push_back(planned_group(spec, runbook, group_name("c", i)));
  return stages;
}

/// A phase as the runbook describes it; decisions come later.
PlannedPhase describe_phase(const PhaseSpec& spec, const Runbook& runbook, const Kinds& kinds) {
  const RunTarget target = parse_run(spec.run);
  PlannedPhase phase;
  phase.id = spec.id;
  phase.title = spec.title;
  phase.run = spec.run;
  phase.program = target.program;
  phase.kind = target.kind;
  phase.filter = target.filter;
  phase.mode = kinds.at(target.kind).mode;
  phase.device = runbook.device_of(spec);
  phase.args = spec.args;
  for (const CaseSpec& item : spec.cases) phase.cases.push_back({item.id, item.args});
  if (phase.cases.empty()) phase.cases.push_back({.id = spec.id});
  for (int64_t i = 0; i < spec.processes; ++i)
    phase.groups.push_back(planned_group(spec, runbook, group_name("g", i)));
  phase.further = further_stages(spec, runbook);
  phase.needs = spec.needs;
  phase.needs_criteria = spec.needs_criteria;
  phase.launcher = spec.launcher;
  phase.required = spec.required;
  phase.timeout_s = spec.timeout_s;
  phase.retries = spec.retries;
  phase.artifacts = spec.artifacts;
  phase.switches = spec.switches;
  return phase;
}

void check_selection(const PhaseSelection& selection, const Runbook& runbook) {
  std::vector<std::string> ids;
  for (const PhaseSpec& phase : runbook.phases) ids.push_back(phase.id);
  for (const auto& [option, names] :
       {std::pair{"--only", &selection.only}, std::pair{"--skip", &selection.skip}})
    for (const std::string& name : *names)
      if (!contains(ids, name))
        throw ConfigError(std::string(option) + " " + in_quotes(name) +
                          ": no such phase in runbook '" + runbook.name + "'" +
                          did_you_mean(name, ids));
}

/// `selection` with all that its phases need: what was named cannot run without it.
PhaseSelection with_needs(PhaseSelection selection, const Runbook& runbook) {
  std::vector<std::string> wanted = selection.only;
  for (size_t i = 0; i < wanted.size(); ++i)
    for (const PhaseSpec& spec : runbook.phases) {
      if (spec.id != wanted[i]) continue;
      for (const std::string& need : phases_before(runbook, spec))
        if (!contains(wanted, need)) wanted.push_back(need);
    }
  selection.added.assign(wanted.begin() + static_cast<ptrdiff_t>(selection.only.size()),
                         wanted.end());
  return selection;
}

/// Criteria this machine can decide: the phase that declares the metric runs, and a baseline is
/// there if one is asked for.
void sort_criteria(const Runbook& runbook, const Facts& facts, Plan& plan) {
  std::map<std::string, bool> runs;
  for (const PlannedPhase& phase : plan.phases)
    runs[phase.id] =
        phase.decision == Decision::kRun || phase.decision == Decision::kRunWithDeviation;
  const bool baseline_ok = check_requirement("baseline.ok", true, facts).cause.empty();
  for (const PhaseSpec& spec : runbook.phases) {
    const auto phase = std::find_if(plan.phases.begin(), plan.phases.end(),
                                    [&](const PlannedPhase& p) { return p.id == spec.id; });
    for (const CriterionSpec& criterion : spec.criteria) {
      const bool measured = runs[criterion.metric.substr(0, criterion.metric.find('.'))];
      const bool compared = !criterion.value.is_object() || baseline_ok;
      (measured && compared ? phase->decides : phase->undecided).push_back(criterion.id);
    }
  }
}

void add_hardware_deviation(const Runbook& runbook, const Facts& facts, Plan& plan) {
  if (runbook.hardware.empty()) return;
  const Unmet unmet = check_requirement("gpu.sku", runbook.hardware, facts);
  if (unmet.cause.empty()) return;
  plan.deviations.push_back(
      {"D-hardware", "runbook expects hardware '" + runbook.hardware + "'", unmet.reason});
}

}  // namespace

int64_t group_seed(int64_t runbook_seed, const std::string& phase, const std::string& group) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a-64
  for (const char c : phase + "/" + group)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  uint64_t mixed = static_cast<uint64_t>(runbook_seed) + hash + 0x9e3779b97f4a7c15u;  // splitmix64
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  mixed ^= mixed >> 31;
  return static_cast<int64_t>(mixed & ((uint64_t{1} << 53) - 1));
}

Plan make_plan(const LoadedRunbook& book, const Facts& facts, const PhaseSelection& asked) {
  const Runbook& runbook = book.runbook;
  check_selection(asked, runbook);
  const PhaseSelection selection = with_needs(asked, runbook);
  Plan plan;
  plan.runbook = runbook.name;
  plan.device = runbook.device;
  plan.seed = runbook.seed;
  plan.facts = json(facts);
  plan.deviations = book.deviations;
  add_hardware_deviation(runbook, facts, plan);
  bool any = false;
  for (const size_t index : order_phases(runbook).order) {
    const PhaseSpec& spec = runbook.phases[index];
    PlannedPhase phase = describe_phase(spec, runbook, book.kinds);
    decide_phase(spec, phases_before(runbook, spec), facts, selection, plan, phase);
    const bool runs =
        phase.decision == Decision::kRun || phase.decision == Decision::kRunWithDeviation;
    if (runs) {
      const double each = spec.minutes > 0 ? spec.minutes : book.kinds.at(phase.kind).minutes;
      phase.minutes = each * static_cast<double>(spec.processes);
    }
    const bool added = contains(selection.added, spec.id);
    if (phase.cause != kCauseSkipped && added) plan.added.push_back(spec.id);
    any = any || (phase.cause != kCauseSkipped && !added);
    plan.minutes += phase.minutes;
    plan.phases.push_back(std::move(phase));
  }
  if (!any) throw ConfigError("--only and --skip leave no phase of runbook '" + runbook.name + "'");
  sort_criteria(runbook, facts, plan);
  return plan;
}

}  // namespace harness
