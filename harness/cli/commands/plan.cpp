#include <fmt/format.h>

#include <cstdio>

#include "base/text/plain_text.h"
#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/planning.h"
#include "harness/preflight/switches.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

namespace harness::cli {
namespace {

bool not_selected(const PlannedPhase& phase) { return phase.cause == kCauseSkipped; }

std::string decision_text(const PlannedPhase& phase) {
  switch (phase.decision) {
    case Decision::kRun:
      return fmt::format("run, {:.1f} min", phase.minutes);
    case Decision::kRunWithDeviation:
      return fmt::format("run, {:.1f} min, with a deviation: {}", phase.minutes, phase.reason);
    case Decision::kDefer:
      return "DEFERRED: " + phase.reason;
    case Decision::kFail:
      return "FAILED: " + phase.reason;
    case Decision::kSkip:
      return (not_selected(phase) ? "not selected: " : "not run: ") + phase.reason;
  }
  return "?";
}

/// Ids behind what they have in common, as many a line as fit.
void print_ids(const char* what, const std::vector<std::string>& ids) {
  constexpr size_t kWidth = 100;
  std::string line = ids.empty() ? "" : fmt::format("      {}: {}", what, ids.front());
  for (size_t i = 1; i < ids.size(); ++i) {
    line += ",";
    if (line.size() + 1 + ids[i].size() > kWidth) {
      fmt::print("{}\n", line);
      line = "       ";
    }
    line += " " + ids[i];
  }
  if (!line.empty()) fmt::print("{}\n", line);
}

/// Criteria whose phase, or the one that measures their figure, was left out are no fault of the
/// machine: they are counted by themselves.
void print(const Plan& plan, const std::vector<std::string>& only) {
  size_t decided = 0, undecided = 0, left_out = 0;
  fmt::print("{} on {}: {} phase{}, about {:.1f} minutes\n", plan.runbook, plan.device,
             plan.phases.size(), plan.phases.size() == 1 ? "" : "s", plan.minutes);
  if (!only.empty()) fmt::print("phases: {}\n", base::plain_text(selection_text(only, plan)));
  for (const PlannedPhase& phase : plan.phases) {
    decided += phase.decides.size();
    (not_selected(phase) ? left_out : undecided) += phase.undecided.size();
    fmt::print("  {:<14} {:<34} {:>2} process{} x {:>2} case{}  {}\n", phase.id, phase.run,
               phase.groups.size(), phase.groups.size() == 1 ? "  " : "es", phase.cases.size(),
               phase.cases.size() == 1 ? " " : "s", decision_text(phase));
    size_t further = 0;
    for (const PlannedStage& stage : phase.further) further += stage.groups.size();
    if (further > 0)
      fmt::print("      up to {} more processes if undecided, or to confirm a failure\n", further);
    print_ids(not_selected(phase) ? "not selected" : "cannot be decided here", phase.undecided);
  }
  for (const Deviation& deviation : plan.deviations)
    fmt::print("  deviation: {} ({})\n", deviation.what, deviation.why);
  fmt::print("{} of {} criteria can be decided on this machine", decided, decided + undecided);
  if (left_out > 0) fmt::print("; {} more belong to phases that are not selected", left_out);
  fmt::print("\n");
}

}  // namespace

int plan_command(const Options& options) {
  const Plan plan = plan_here(options).plan;
  if (options.json) {
    std::printf("%s", pretty_dump(to_json(plan)).c_str());
  } else {
    print(plan, options.only);
  }
  // Every process of a run would refuse these; checked before it costs time.
  if (const std::string refusal = environment_refusal(program_dir()); !refusal.empty())
    throw ConfigError("switches of the environment: " + refusal);
  check_switches(plan);
  // The exit code with which a run that cannot decide every criterion would end.
  bool in_part = false;
  for (const PlannedPhase& phase : plan.phases) {
    if (not_selected(phase)) {
      in_part = true;
    } else if (phase.required == Required::kAlways &&
               (phase.decision == Decision::kDefer || phase.decision == Decision::kSkip ||
                phase.decision == Decision::kFail)) {
      return 5;
    }
  }
  return in_part ? 8 : 0;
}

}  // namespace harness::cli
