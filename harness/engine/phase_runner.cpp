#include "harness/engine/phase_runner.h"

#include <algorithm>

#include "harness/engine/interrupt.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

bool is_one_of(const std::string& text, std::initializer_list<const char*> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

/// Ends that are no result of the phase: it is to be continued.
bool unfinished(const std::string& cause) { return is_one_of(cause, {"INTERRUPTED", "DISK_FULL"}); }

/// After these the next process of the same phase would end the same way, at the price of another
/// wait.
bool pointless_to_go_on(const std::string& cause) {
  return is_one_of(cause, {"HANG", "TIMEOUT", "NOT_STARTED"});
}

/// It goes on at its checkpoints: behind its last step a further attempt would measure nothing.
bool continues_itself(const PlannedPhase& phase) {
  return phase.args.is_object() && phase.args.value("resume", nlohmann::json()) == true;
}

std::string status_text(const PhaseRecord& record) {
  return std::string(enum_name(record.status)) +
         (record.cause.empty() ? "" : " (" + record.cause + ")");
}

}  // namespace

PhaseRecord PhaseRunner::run(const PlannedPhase& phase,
                             const std::map<std::string, PhaseRecord>& ended) const {
  if (auto record = dir_.phase_record(phase.id); record && reusable(phase, *record)) {
    observer_.on_note(phase.id + ": ended before as " + status_text(*record) + ", reused");
    return *record;
  }
  switch (phase.decision) {
    case Decision::kDefer:
      return not_run(phase, StepStatus::kDeferred, phase.cause, phase.reason);
    case Decision::kFail:
      return not_run(phase, StepStatus::kFailed, phase.cause, phase.reason);
    case Decision::kSkip:
      return not_run(phase, StepStatus::kNotRun, phase.cause, phase.reason);
    case Decision::kRun:
    case Decision::kRunWithDeviation:
      break;
  }
  if (PhaseRecord record = unmet(phase, ended); !record.cause.empty()) return record;
  return run_groups(phase);
}

/// The record of a phase that lacks what it needs; an empty cause when it may run.
PhaseRecord PhaseRunner::unmet(const PlannedPhase& phase,
                               const std::map<std::string, PhaseRecord>& ended) const {
  for (const auto& need : phase.needs) {
    const auto before = ended.find(need);
    if (before != ended.end() && before->second.status == StepStatus::kCompleted) continue;
    const auto state = before == ended.end() ? "not in the plan" : status_text(before->second);
    return not_run(phase, StepStatus::kNotRun, std::string(kCauseUpstream),
                   "needs " + need + ", which is " + state);
  }
  if (phase.needs_criteria.empty()) return {};
  const std::string why = options_.unmet_criteria ? options_.unmet_criteria(phase)
                                                  : "nothing here can judge the criteria it needs";
  return why.empty() ? PhaseRecord()
                     : not_run(phase, StepStatus::kNotRun, std::string(kCauseCriteria), why);
}

/// A record counts again when the evidence of its completed groups still holds.
bool PhaseRunner::reusable(const PlannedPhase& phase, const PhaseRecord& record) const {
  for (const auto& outcome : record.groups)
    if (outcome.status == StepStatus::kCompleted && !groups_.evidence_holds(phase, outcome.group))
      return false;
  return true;
}

PhaseRecord PhaseRunner::not_run(const PlannedPhase& phase, StepStatus status,
                                 const std::string& cause, const std::string& reason) const {
  PhaseRecord record;
  record.phase = phase.id;
  record.status = status;
  record.cause = cause;
  record.reason = reason;
  dir_.write_phase_record(record);
  return record;
}

PhaseRecord PhaseRunner::run_groups(const PlannedPhase& phase) const {
  PhaseRecord record;
  record.phase = phase.id;
  set_cut_off_aside(phase);
  for (auto groups = phase.groups; !groups.empty(); groups = further_groups(phase, record))
    if (!run_stage(phase, groups, record)) return record;  // not written: to be continued
  judge(phase, record);
  dir_.write_phase_record(record);
  return record;
}

/// What a process wrote before it was cut off asks for no further stage.
void PhaseRunner::set_cut_off_aside(const PlannedPhase& phase) const {
  for (const PlannedStage& stage : phase.further)
    for (const PlannedGroup& group : stage.groups) {
      const auto before = dir_.group_outcome(phase.id, group.id);
      if (!before || !settled(phase, *before)) set_aside(phase, group);
    }
}

void PhaseRunner::set_aside(const PlannedPhase& phase, const PlannedGroup& group) const {
  if (const int n = dir_.set_aside(phase.id, group.id))
    observer_.on_note(phase.id + "/" + group.id + ": cut off before, kept as " + group.id + ".a" +
                      std::to_string(n));
}

/// What the evidence so far asks for beyond the record; nothing once a process failed.
std::vector<PlannedGroup> PhaseRunner::further_groups(const PlannedPhase& phase,
                                                      const PhaseRecord& record) const {
  if (phase.further.empty() || !options_.asked) return {};
  for (const auto& outcome : record.groups)
    if (outcome.status != StepStatus::kCompleted) return {};
  auto groups = options_.asked(dir_.root(), phase);
  std::erase_if(groups, [&](const PlannedGroup& group) {
    return std::ranges::find(record.groups, group.id, &GroupOutcome::group) != record.groups.end();
  });
  if (!groups.empty())
    observer_.on_note(phase.id + ": the evidence asks for " + std::to_string(groups.size()) +
                      " more processes, " + groups.front().id + " to " + groups.back().id);
  return groups;
}

/// Runs `groups` into the record. False when the phase was cut off and has to be continued.
bool PhaseRunner::run_stage(const PlannedPhase& phase, const std::vector<PlannedGroup>& groups,
                            PhaseRecord& record) const {
  for (const auto& group : groups) {
    record.groups.push_back(run_group(phase, group));
    const auto& outcome = record.groups.back();
    record.seconds += outcome.seconds + dir_.seconds_aside(phase.id, group.id);
    record.attempts =
        std::max<int64_t>(record.attempts, 1 + dir_.attempts_aside(phase.id, group.id));
    if (outcome.cause == "DISK_FULL")
      throw Error(outcome.reason + "; make room and continue with --resume");
    if (unfinished(outcome.cause)) {
      record.status = StepStatus::kFailed;
      record.cause = outcome.cause;
      return false;
    }
    if (pointless_to_go_on(outcome.cause)) break;
  }
  return true;
}

/// One group with its retries; an earlier outcome that holds is reused, everything else is set
/// aside first.
GroupOutcome PhaseRunner::run_group(const PlannedPhase& phase, const PlannedGroup& group) const {
  const auto name = phase.id + "/" + group.id;
  const auto before = dir_.group_outcome(phase.id, group.id);
  if (before && settled(phase, *before)) {
    observer_.on_note(name + ": evidence of an earlier start reused");
    return *before;
  }
  if (!before && continues_itself(phase) && groups_.evidence_holds(phase, group.id)) {
    const auto outcome =
        groups_.ended_before(phase, group.id, dir_.seconds_written(phase.id, group.id));
    if (outcome.status == StepStatus::kCompleted) {
      dir_.write_group_outcome(phase.id, outcome);
      observer_.on_note(name + ": ended before the run was cut off, reused");
      return outcome;
    }
  }
  set_aside(phase, group);
  while (true) {
    observer_.on_group_start(phase, group.id, 1 + dir_.attempts_aside(phase.id, group.id));
    const auto outcome = groups_.run(phase, group);
    if (unfinished(outcome.cause)) return outcome;
    dir_.write_group_outcome(phase.id, outcome);
    if (!may_retry(phase, outcome)) return outcome;
    observer_.on_note(name + ": " + outcome.cause + ", tried again");
    dir_.set_aside(phase.id, group.id);
  }
}

bool PhaseRunner::settled(const PlannedPhase& phase, const GroupOutcome& outcome) const {
  if (outcome.status == StepStatus::kCompleted) return groups_.evidence_holds(phase, outcome.group);
  return !may_retry(phase, outcome);
}

/// Faults of the machine in attempts that were set aside count, attempts that were cut off do not.
bool PhaseRunner::may_retry(const PlannedPhase& phase, const GroupOutcome& outcome) const {
  int64_t faults = 0;
  for (int n = dir_.attempts_aside(phase.id, outcome.group); n > 0; n--) {
    const auto earlier = dir_.group_outcome(phase.id, outcome.group + ".a" + std::to_string(n));
    faults += earlier && earlier->infrastructure;
  }
  return outcome.infrastructure && faults < phase.retries;
}

void PhaseRunner::judge(const PlannedPhase& phase, PhaseRecord& record) const {
  record.status = StepStatus::kCompleted;
  const auto fail = [&](const std::string& cause, const std::string& reason) {
    record.status = StepStatus::kFailed;
    record.cause = cause;
    record.reason = reason;
  };
  for (const auto& outcome : record.groups) {
    if (outcome.status == StepStatus::kCompleted) continue;
    fail(outcome.cause, outcome.group + ": " + outcome.reason);
    return;
  }
  judge_undecided(phase, record);
  if (record.groups.empty()) return fail("NO_TESTS", "the plan holds no group for it");
  if (record.status != StepStatus::kCompleted) return;
  for (const auto& artifact : phase.artifacts)
    if (!std::filesystem::exists(dir_.phase_dir(phase.id) / "out" / artifact))
      return fail("MISSING_ARTIFACT", "out/" + artifact + " was not written");
}

/// DEFERRED when no case was decided because the machine lacks something; PARTIAL when some were,
/// or when what a case recorded is incomplete. FAILED when a comparison was one of equals.
void PhaseRunner::judge_undecided(const PlannedPhase& phase, PhaseRecord& record) const {
  bool all_deferred = true;
  for (const auto& outcome : record.groups) {
    const auto found = groups_.undecided(phase, outcome.group);
    if (!found.no_contrast.empty()) {
      record.status = StepStatus::kFailed;
      record.cause = "NO_CONTRAST";
      record.reason = found.no_contrast;
      return;
    }
    all_deferred = all_deferred && found.others == 0;
    for (const auto& end : found.ends) {
      all_deferred = all_deferred && end.status == "deferred";
      if (!record.cause.empty()) continue;
      const size_t colon = end.reason.find(": ");
      record.cause = end.reason.substr(0, colon);
      record.reason = end.case_id + ": " + end.reason.substr(colon + 2);
    }
  }
  if (record.cause.empty()) return;
  record.status = all_deferred ? StepStatus::kDeferred : StepStatus::kPartial;
}

}  // namespace harness
