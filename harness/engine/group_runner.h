#pragma once
#include <string>
#include <vector>

#include "harness/engine/engine.h"
#include "harness/engine/run_dir.h"
#include "harness/process/watch.h"

namespace harness {

/// Runs one group (one process, or one builtin) and leaves its evidence as GROUP.jsonl. The outcome
/// is returned, not recorded.
class GroupRunner {
 public:
  GroupRunner(const RunOptions& options, const RunDir& dir, const Builtins& builtins,
              Observer& observer)
      : options_(options), dir_(dir), builtins_(builtins), observer_(observer) {}

  GroupOutcome run(const PlannedPhase& phase, const PlannedGroup& group) const;

  /// Whether the evidence of a group that was recorded as COMPLETED still holds.
  bool evidence_holds(const PlannedPhase& phase, const std::string& group) const;

  /// The outcome of a group whose process wrote all of its evidence before the engine was killed:
  /// how it exited is not known. COMPLETED when the evidence and its artifacts hold.
  GroupOutcome ended_before(const PlannedPhase& phase, const std::string& group,
                            double seconds) const;

  /// The ends of a completed group's cases that its worker could not decide (`deferred` or
  /// `partial`), and how many others there were.
  struct Undecided {
    std::vector<base::protocol::CaseEnd> ends;
    size_t others = 0;
    std::string no_contrast = {};  ///< "CASE: ..." of one whose two states ran the same
  };
  Undecided undecided(const PlannedPhase& phase, const std::string& group) const;

 private:
  std::string other_program(const std::string& program) const;
  void judge_libraries(GroupOutcome& outcome) const;
  GroupOutcome run_builtin(const PlannedPhase& phase, const PlannedGroup& group) const;
  GroupOutcome run_worker_program(const PlannedPhase& phase, const PlannedGroup& group) const;
  GroupOutcome run_resident(const PlannedPhase& phase, const PlannedGroup& group) const;
  GroupOutcome run_test_program(const PlannedPhase& phase, const PlannedGroup& group) const;

  base::protocol::CaseIn case_in(const PlannedPhase& phase, const PlannedGroup& group) const;
  WorkerSpec worker_spec(const PlannedPhase& phase, const std::string& group,
                         const std::string& stem) const;
  WatchPolicy policy(const PlannedPhase& phase) const;
  WatchHooks hooks(const PlannedPhase& phase, const std::string& group) const;

  const RunOptions& options_;
  const RunDir& dir_;
  const Builtins& builtins_;
  Observer& observer_;
};

}  // namespace harness
