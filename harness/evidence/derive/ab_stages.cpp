#include "harness/evidence/derive/ab_stages.h"

#include <algorithm>

#include "harness/evidence/derive/baselines.h"
#include "harness/stats/ab.h"
#include "harness/stats/estimators/estimators.h"

namespace harness {
namespace {

/// "g01", and "g01.r0" of its ranks.
bool is_of(const std::string& process, const std::string& group) {
  return process == group || process.starts_with(group + ".r");
}

bool has_evidence(const RunFolder& run, const std::string& phase, const std::string& group) {
  const std::string stem = "phases/" + phase + "/" + group;
  return run.has(stem + ".jsonl") || run.has(stem + ".r0.jsonl");
}

/// The phase as if `groups` were all of it.
RawPhase read_groups(const RunFolder& run, const RunFiles& files, PlannedPhase planned,
                     std::vector<PlannedGroup> groups) {
  planned.groups = std::move(groups);
  PhaseEnd end;
  end.status = StepStatus::kCompleted;
  return read_raw_phase(run, files, planned, end);
}

bool all_usable(const EvidenceView& view) {
  return std::ranges::all_of(view.groups,
                             [](const GroupEvidence& group) { return group.unusable.empty(); });
}

class Rule {
 public:
  Rule(const RunFolder& run, const RunFiles& files, const Baselines& baselines,
       const PlannedPhase& planned)
      : run_(run), files_(files), baselines_(baselines), planned_(planned) {
    stages_.taken = planned;
    for (const PlannedStage& stage : planned.further) stages_.looks += stage.id != kConfirmStage;
  }

  AbStages apply() && {
    if (planned_.further.empty()) return std::move(stages_);
    if (measured()) follow_looks();
    refuse_others();
    return std::move(stages_);
  }

 private:
  /// Every group taken so far reported.
  bool measured() const {
    return std::ranges::all_of(stages_.taken.groups, [&](const PlannedGroup& group) {
      return has_evidence(run_, planned_.id, group.id);
    });
  }

  void follow_looks() {
    for (const PlannedStage& stage : planned_.further) {
      const RawPhase raw = read_groups(run_, files_, planned_, stages_.taken.groups);
      if (!all_usable(raw.view)) return;
      const Gates gates = judge_gates(raw.view);
      const bool confirm = stage.id == kConfirmStage;
      if (confirm ? !gates.failed : !gates.look_again()) continue;
      take(stage, confirm ? stages_.taken.groups.size() : stage.groups.size());
      if (!measured()) return;
    }
  }

  void take(const PlannedStage& stage, size_t count) {
    for (size_t i = 0; i < std::min(count, stage.groups.size()); ++i) {
      const PlannedGroup& group = stage.groups[i];
      stages_.taken.groups.push_back(group);
      if (stage.id == kConfirmStage) stages_.confirming.push_back(group.id);
    }
  }

  struct Gates {
    bool undecided = false, failed = false;
    bool failed_beyond_noise = false;  ///< and the figure has a verdict of its own
    bool look_again() const { return (undecided || failed) && !failed_beyond_noise; }
  };
  Gates judge_gates(EvidenceView view) const {
    view.looks = stages_.looks;
    std::vector<Metric> figures;
    for (const MetricSpec& metric : files_.kinds.at(planned_.kind).metrics)
      if (is_paired(metric) && (metric.device.empty() || metric.device == planned_.device))
        figures.push_back(estimate(metric, view));
    Gates gates;
    for (const PhaseSpec& spec : files_.runbook.phases) {
      for (const CriterionSpec& criterion : spec.criteria) {
        if (criterion.severity == Severity::kInfo) continue;
        const auto verdict = judge(criterion, spec.id, figures, baselines_).verdict;
        const bool failed = verdict == CriterionVerdict::kFail;
        gates.undecided |= verdict == CriterionVerdict::kInconclusive;
        gates.failed |= failed;
        gates.failed_beyond_noise |= failed && !within_noise(figures, criterion.metric);
      }
    }
    return gates;
  }

  /// The difference does not exceed what identical arms showed.
  static bool within_noise(const std::vector<Metric>& figures, const std::string& name) {
    const auto figure = std::ranges::find(figures, name, &Metric::name);
    return figure != figures.end() &&
           figure->verdict == stats::ab_verdict_name(stats::AbVerdict::kInconclusive);
  }

  /// A process that was not asked for would be a look outside of the error budget.
  void refuse_others() {
    for (const PlannedStage& stage : planned_.further)
      for (const PlannedGroup& group : stage.groups) {
        const bool taken = std::ranges::any_of(
            stages_.taken.groups, [&](const PlannedGroup& one) { return one.id == group.id; });
        if (!taken && has_evidence(run_, planned_.id, group.id))
          stages_.problems.emplace_back(
              "phases/" + planned_.id + "/" + group.id + ".jsonl",
              "stage '" + stage.id + "' ran, and the evidence before it asks for none");
      }
  }

  const RunFolder& run_;
  const RunFiles& files_;
  const Baselines& baselines_;
  const PlannedPhase& planned_;
  AbStages stages_;
};

EvidenceView part(const AbStages& stages, const EvidenceView& all, bool confirming) {
  EvidenceView view = all;
  const auto confirms = [&](const std::string& process) {
    return std::ranges::any_of(stages.confirming,
                               [&](const std::string& id) { return is_of(process, id); });
  };
  std::erase_if(view.groups,
                [&](const GroupEvidence& group) { return confirms(group.id) != confirming; });
  const auto confirmed = static_cast<int64_t>(stages.confirming.size());
  view.groups_planned = confirming ? confirmed : all.groups_planned - confirmed;
  view.looks = confirming ? 1 : stages.looks;
  return view;
}

}  // namespace

AbStages ab_stages(const RunFolder& run, const RunFiles& files, const Baselines& baselines,
                   const PlannedPhase& planned) {
  return Rule(run, files, baselines, planned).apply();
}

std::vector<PlannedGroup> asked_groups(const std::filesystem::path& run_dir,
                                       const PlannedPhase& planned) {
  const RunFolder run(run_dir);
  const RunFiles files = read_run_files(run);
  const Baselines baselines = read_baselines(run, files.run.runbook, files.environment);
  return ab_stages(run, files, baselines, planned).taken.groups;
}

EvidenceView measured_view(const AbStages& stages, const EvidenceView& all) {
  return part(stages, all, false);
}

EvidenceView confirming_view(const AbStages& stages, const EvidenceView& all) {
  return part(stages, all, true);
}

bool is_paired(const MetricSpec& metric) { return metric.estimator.starts_with("paired_"); }

}  // namespace harness
