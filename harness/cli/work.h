#pragma once
#include "harness/cli/options.h"
#include "harness/engine/engine.h"
#include "harness/results/results.h"

namespace harness::cli {

/// What is to run: planned now, or, resuming, read from the folder as it was planned then.
struct Work {
  Runbook runbook;
  Kinds kinds;
  Plan plan;
  RunOptions run;
};

/// Plans the runbook of the command line on this machine. Throws ConfigError.
Work new_work(const Options& options);

/// What the folder of --resume was to do. Throws ConfigError, or EvidenceError for a damaged
/// folder.
Work resumed_work(const Options& options);

/// Keeps what a self test of all faults caught, whether it ran at once or was resumed: runs of this
/// build on such hardware take it along. Nothing for other runs.
void keep_catch_matrix(const Work& work, const Results& results);

}  // namespace harness::cli
