#pragma once
#include "harness/cli/options.h"
#include "harness/runbook/load.h"
#include "harness/runbook/plan.h"

namespace harness::cli {

/// A runbook as the command line wants it and what this machine can do of it.
struct Planned {
  LoadedRunbook book;
  Plan plan;
};

/// Reads options.runbook with --set, --only and --skip and plans it with the facts of this machine.
/// Throws ConfigError.
Planned plan_here(const Options& options);

/// Throws ConfigError when the programs of the plan would refuse the switches of the environment,
/// or none of its phases would look at one of them.
void check_switches(const Plan& plan);

}  // namespace harness::cli
