#pragma once
#include <map>
#include <string>

#include "harness/engine/group_runner.h"

namespace harness {

/// Takes phases from the plan to their record: decision, needs, groups, retries, reuse. A phase
/// that needs criteria runs only when all of them PASS on what the run has so far.
class PhaseRunner {
 public:
  PhaseRunner(const RunOptions& options, const RunDir& dir, const GroupRunner& groups,
              Observer& observer)
      : options_(options), dir_(dir), groups_(groups), observer_(observer) {}

  /// `ended`: records of the phases before it. The record is written unless the run was interrupted
  /// (cause INTERRUPTED) or the disk is full (throws Error): such a phase is continued by --resume.
  PhaseRecord run(const PlannedPhase& phase, const std::map<std::string, PhaseRecord>& ended) const;

 private:
  PhaseRecord unmet(const PlannedPhase& phase,
                    const std::map<std::string, PhaseRecord>& ended) const;
  bool reusable(const PlannedPhase& phase, const PhaseRecord& record) const;
  PhaseRecord not_run(const PlannedPhase& phase, StepStatus status, const std::string& cause,
                      const std::string& reason) const;
  PhaseRecord run_groups(const PlannedPhase& phase) const;
  bool run_stage(const PlannedPhase& phase, const std::vector<PlannedGroup>& groups,
                 PhaseRecord& record) const;
  void set_cut_off_aside(const PlannedPhase& phase) const;
  void set_aside(const PlannedPhase& phase, const PlannedGroup& group) const;
  std::vector<PlannedGroup> further_groups(const PlannedPhase& phase,
                                           const PhaseRecord& record) const;
  GroupOutcome run_group(const PlannedPhase& phase, const PlannedGroup& group) const;
  bool settled(const PlannedPhase& phase, const GroupOutcome& outcome) const;
  bool may_retry(const PlannedPhase& phase, const GroupOutcome& outcome) const;
  void judge_undecided(const PlannedPhase& phase, PhaseRecord& record) const;
  void judge(const PlannedPhase& phase, PhaseRecord& record) const;

  const RunOptions& options_;
  const RunDir& dir_;
  const GroupRunner& groups_;
  Observer& observer_;
};

}  // namespace harness
