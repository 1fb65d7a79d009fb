#pragma once
#include "harness/cli/options.h"
#include "harness/runbook/load.h"
#include "harness/runbook/plan/plan.h"

namespace harness::cli {

/// A runbook as the command line wants it and what this machine can do of it.
struct Planned {
  LoadedRunbook book;
  Plan plan;
};

/// Reads options.runbook with --set, --only and --skip and plans it with the facts of this machine.
/// Throws ConfigError.
Planned plan_here(const Options& options);

/// "oracle, gate_health; also environment, which they need" for the phases that --only named; empty
/// without --only.
std::string selection_text(const std::vector<std::string>& only, const Plan& plan);

/// Throws ConfigError when no phase that would run looks at a switch of the environment. An unknown
/// one is an error of the run's phases, which its report names.
void check_switches(const Plan& plan);

}  // namespace harness::cli
