#include <fmt/format.h>

#include <cstdio>

#include "harness/cli/commands/commands.h"
#include "harness/cli/paths.h"
#include "harness/cli/planning.h"
#include "harness/preflight/switches.h"
#include "harness/schema/error.h"
#include "harness/schema/write.h"

namespace harness::cli {
namespace {

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
      return "not run: " + phase.reason;
  }
  return "?";
}

void print(const Plan& plan) {
  size_t decided = 0, undecided = 0;
  fmt::print("{} on {}: {} phases, about {:.1f} minutes\n", plan.runbook, plan.device,
             plan.phases.size(), plan.minutes);
  for (const PlannedPhase& phase : plan.phases) {
    decided += phase.decides.size();
    undecided += phase.undecided.size();
    fmt::print("  {:<14} {:<34} {:>2} process{} x {:>2} case{}  {}\n", phase.id, phase.run,
               phase.groups.size(), phase.groups.size() == 1 ? "  " : "es", phase.cases.size(),
               phase.cases.size() == 1 ? " " : "s", decision_text(phase));
    size_t further = 0;
    for (const PlannedStage& stage : phase.further) further += stage.groups.size();
    if (further > 0)
      fmt::print("      up to {} more processes if undecided, or to confirm a failure\n", further);
    for (const std::string& id : phase.undecided)
      fmt::print("      cannot be decided here: {}\n", id);
  }
  for (const Deviation& deviation : plan.deviations)
    fmt::print("  deviation: {} ({})\n", deviation.what, deviation.why);
  fmt::print("{} of {} criteria can be decided on this machine\n", decided, decided + undecided);
}

}  // namespace

int plan_command(const Options& options) {
  const Plan plan = plan_here(options).plan;
  if (options.json) {
    std::printf("%s", pretty_dump(to_json(plan)).c_str());
  } else {
    print(plan);
  }
  // Every process of a run would refuse these; said before it is paid for.
  if (const std::string refusal = environment_refusal(program_dir()); !refusal.empty())
    throw ConfigError("switches of the environment: " + refusal);
  check_switches(plan);
  // A run that cannot decide everything it must would end with this code; say so before it is paid
  // for.
  for (const PlannedPhase& phase : plan.phases)
    if (phase.required == Required::kAlways &&
        (phase.decision == Decision::kDefer || phase.decision == Decision::kSkip ||
         phase.decision == Decision::kFail))
      return 5;
  return 0;
}

}  // namespace harness::cli
