#pragma once
#include <string>
#include <vector>

#include "harness/evidence/derive/raw_evidence.h"
#include "harness/evidence/error.h"
#include "harness/verdict/verdict.h"

namespace harness {

/// How far the measurement of a phase has gone, as a pure function of its evidence: the engine asks
/// it what to run next, `derive` and `verify` hold the folder to the same answer.
///
/// The looks are those of the plan and nothing between them: after each one the gating criteria
/// (blocker, major) on paired figures are judged with all processes so far at `level_each`. The
/// next look is due while one of them is INCONCLUSIVE, or FAILs by a difference that identical arms
/// show too (the figure's own verdict is INCONCLUSIVE), and none FAILs by more than that. When the
/// looks end with a FAIL, the confirmation is due: as many fresh processes as were measured, judged
/// alone at 99 %. No stage follows a process that failed.
struct AbStages {
  PlannedPhase taken;                   ///< the phase with the groups of every stage that is due
  std::vector<std::string> confirming;  ///< ids of the groups that confirm
  int64_t looks = 1;                    ///< planned looks
  std::vector<EvidenceError> problems;  ///< evidence that no rule asked for
};

AbStages ab_stages(const RunFolder& run, const RunFiles& files, const Baselines& baselines,
                   const PlannedPhase& planned);

/// Groups of AbStages::taken of one phase of a run folder, for RunOptions::asked.
std::vector<PlannedGroup> asked_groups(const std::filesystem::path& run_dir,
                                       const PlannedPhase& planned);

/// The evidence that figures of speed rest on: without the confirmation, at the level of its looks.
EvidenceView measured_view(const AbStages& stages, const EvidenceView& all);

/// The confirmation alone; no groups when there was none.
EvidenceView confirming_view(const AbStages& stages, const EvidenceView& all);

/// Whether `metric` is judged by looks and confirmation.
bool is_paired(const MetricSpec& metric);

}  // namespace harness
