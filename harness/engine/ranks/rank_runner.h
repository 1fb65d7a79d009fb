#pragma once
#include <vector>

#include "harness/process/watch.h"

namespace harness {

/// Runs the ranks of one group, a process each, to their ends. When one fails, the others have
/// `grace_s` seconds to report their own failure before they are stopped. The outcome is that of
/// the rank that failed first, or of rank 0; a failure names rank and, for every rank, its last
/// collective (read from `notes`/last_collective.rankN.txt, which the ranks rewrite) and its last
/// stage (from the record that its spec names).
GroupOutcome run_ranks(const std::vector<WorkerSpec>& ranks, const WatchPolicy& policy,
                       const WatchHooks& hooks, const std::filesystem::path& notes,
                       double grace_s = 3);

}  // namespace harness
