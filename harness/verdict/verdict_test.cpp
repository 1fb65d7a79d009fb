#include "harness/verdict/verdict.h"
#include "harness/results/missing_hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace harness {
namespace {

using testing::HasSubstr;

/// Everything decide() reads, owned; starts as a run that is GO.
struct TestRun {
  std::vector<PhaseResult> phases;
  std::vector<CriterionResult> criteria;
  std::vector<Deviation> deviations;
  std::vector<std::string> faults;
  bool evidence_ok = true;
  std::string gate = "strict";
  int64_t gpus = 0;

  TestRun() {
    add_phase("smoke", StepStatus::kCompleted);
    add_criterion("C-ok", Severity::kBlocker, CriterionVerdict::kPass);
  }
  PhaseResult& add_phase(const std::string& name, StepStatus status) {
    PhaseResult p;
    p.id = "P-" + name;
    p.name = name;
    p.status = status;
    return phases.emplace_back(p);
  }
  CriterionResult& add_criterion(const std::string& id, Severity severity, CriterionVerdict verdict,
                                 const std::string& phase = "smoke") {
    CriterionResult c;
    c.id = id;
    c.phase = phase;
    c.severity = severity;
    c.verdict = verdict;
    c.reason = "reason of " + id;
    return criteria.emplace_back(c);
  }
  /// As --skip does.
  void leave_out(const std::string& phase) {
    if (std::ranges::find(phases, phase, &PhaseResult::name) != phases.end()) return;
    add_phase(phase, StepStatus::kNotRun).cause = "SKIPPED";
    add_criterion("C-" + phase, Severity::kBlocker, CriterionVerdict::kNotEvaluated, phase);
    deviations.push_back({"D-skip." + phase, "phase does not run", ""});
  }
  Verdict verdict() const {
    return decide(
        {phases, criteria, deviations, faults, evidence_ok, gate, "no GPU statement", gpus});
  }
};

/// One way to make each line of the table match, in the order of precedence.
struct Row {
  int exit;
  const char* word;
  void (*inject)(TestRun&);
};
const std::vector<Row> kRows = {
    {6, "NO-GO (evidence)", [](TestRun& r) { r.evidence_ok = false; }},
    {3, "NO-GO (fault)", [](TestRun& r) { r.faults.push_back("the disk is full"); }},
    {1, "NO-GO",
     [](TestRun& r) { r.add_criterion("C-f", Severity::kBlocker, CriterionVerdict::kFail); }},
    {1, "NO-GO", [](TestRun& r) { r.add_phase("f", StepStatus::kFailed).cause = "HANG"; }},
    {5, "NO-GO (undecided)",
     [](TestRun& r) { r.add_phase("d", StepStatus::kDeferred).cause = "GPU_COUNT"; }},
    {5, "NO-GO (undecided)", [](TestRun& r) { r.add_phase("n", StepStatus::kNotRun); }},
    {5, "NO-GO (undecided)", [](TestRun& r) { r.add_phase("h", StepStatus::kPartial); }},
    {4, "NO-GO (undecided)",
     [](TestRun& r) {
       r.add_criterion("C-i", Severity::kBlocker, CriterionVerdict::kInconclusive);
     }},
    {4, "NO-GO (undecided)",
     [](TestRun& r) {
       r.add_criterion("C-n", Severity::kBlocker, CriterionVerdict::kNotEvaluated);
     }},
    {8, "PARTIAL", [](TestRun& r) { r.leave_out("other"); }},
    {7, "CONDITIONAL GO",
     [](TestRun& r) { r.add_criterion("C-m", Severity::kMajor, CriterionVerdict::kFail); }},
    {7, "CONDITIONAL GO",
     [](TestRun& r) { r.add_criterion("C-u", Severity::kMajor, CriterionVerdict::kNotEvaluated); }},
    {7, "CONDITIONAL GO",
     [](TestRun& r) { r.add_criterion("C-w", Severity::kMajor, CriterionVerdict::kInconclusive); }},
    {7, "CONDITIONAL GO", [](TestRun& r) { r.deviations.push_back({"D-1", "--set a.b=1", ""}); }},
    {7, "CONDITIONAL GO",
     [](TestRun& r) {
       PhaseResult& p = r.add_phase("gpu", StepStatus::kDeferred);
       p.required = Required::kIfHardware;
       p.cause = "GPU_COUNT";
     }},
};

TEST(Decide, Go) {
  const Verdict v = TestRun().verdict();
  EXPECT_EQ(v.word, "GO");
  EXPECT_EQ(v.exit, 0);
  EXPECT_EQ(v.scope, "no GPU statement");
  EXPECT_TRUE(v.conditions.empty());
}

TEST(Decide, EveryRow) {
  for (const Row& row : kRows) {
    TestRun run;
    row.inject(run);
    EXPECT_EQ(run.verdict().exit, row.exit) << row.word;
    EXPECT_EQ(run.verdict().word, row.word);
    EXPECT_EQ(run.verdict().conditions.empty(), row.exit != 7) << row.word;
  }
}

TEST(Decide, EveryPrecedencePair) {
  for (size_t i = 0; i < kRows.size(); ++i)
    for (size_t j = 0; j < kRows.size(); ++j) {
      TestRun run;
      kRows[i].inject(run);
      kRows[j].inject(run);
      EXPECT_EQ(run.verdict().exit, kRows[std::min(i, j)].exit) << i << " and " << j;
    }
}

TEST(Decide, AdvisoryMaps457ToZeroAndReportsIt) {
  for (const Row& row : kRows) {
    TestRun run;
    row.inject(run);
    run.gate = "advisory";
    const Verdict v = run.verdict();
    const bool mapped = row.exit == 4 || row.exit == 5 || row.exit == 7;
    EXPECT_EQ(v.exit, mapped ? 0 : row.exit);
    EXPECT_EQ(v.word, row.word);
    EXPECT_EQ(v.gate, "advisory");
    const std::string note = "exit code " + std::to_string(row.exit) + " reported as 0";
    EXPECT_EQ(v.rule.find(note) != std::string::npos, mapped) << v.rule;
  }
}

TEST(Decide, ARunInPartIsNeverAVerdictOnTheRunbook) {
  TestRun run;
  run.leave_out("other");
  EXPECT_EQ(run.verdict().rule,
            "selected phases passed; no verdict on the runbook: P-other not selected");
  EXPECT_TRUE(run.verdict().conditions.empty());
  EXPECT_THAT(run.verdict().weakest, HasSubstr("C-ok PASS")) << "of what was selected";
  run.gate = "advisory";
  EXPECT_EQ(run.verdict().exit, 8) << "no gate turns it green";
  run.add_criterion("C-m", Severity::kMajor, CriterionVerdict::kFail);
  EXPECT_EQ(run.verdict().word, "PARTIAL");
  EXPECT_THAT(run.verdict().rule,
              HasSubstr("selected phases passed with conditions; no verdict on the runbook: "
                        "C-m FAIL"));
  EXPECT_THAT(run.verdict().rule, HasSubstr("; P-other not selected"));
  EXPECT_THAT(run.verdict().conditions, testing::ElementsAre(HasSubstr("C-m FAIL")));
}

TEST(Decide, ACriterionOnAFigureOfAPhaseLeftOutIsNotUndecided) {
  TestRun run;
  run.leave_out("other");
  run.add_criterion("C-x", Severity::kBlocker, CriterionVerdict::kNotEvaluated).metric =
      "other.x_count";
  EXPECT_EQ(run.verdict().exit, 8);
  run.criteria.back().verdict = CriterionVerdict::kFail;
  EXPECT_EQ(run.verdict().exit, 1) << "a figure that is there decides";
}

TEST(Decide, WithoutAPhaseThatRanARunInPartIsUndecided) {
  TestRun run;
  run.leave_out("other");
  run.phases.front().status = StepStatus::kNotRun;
  run.phases.front().cause = "UPSTREAM";
  EXPECT_EQ(run.verdict().exit, 5);
}

TEST(Decide, NothingIsNeverGo) {
  for (const bool with_deviation : {false, true}) {
    TestRun empty;
    empty.phases.clear();
    empty.criteria.clear();
    if (with_deviation) empty.deviations.push_back({"D-1", "x", ""});
    EXPECT_EQ(empty.verdict().exit, 5);

    TestRun no_criteria;
    no_criteria.criteria.clear();
    if (with_deviation) no_criteria.deviations.push_back({"D-1", "x", ""});
    EXPECT_EQ(no_criteria.verdict().exit, 4);

    TestRun only_info;
    only_info.criteria[0].severity = Severity::kInfo;
    EXPECT_EQ(only_info.verdict().exit, 4);

    TestRun none_completed;
    none_completed.phases[0].status = StepStatus::kNotRun;
    none_completed.phases[0].required = Required::kNo;
    EXPECT_EQ(none_completed.verdict().exit, 5);
  }
  EXPECT_EQ(decide({}).exit, 6);  // not even the evidence was verified
}

TEST(Decide, OptionalPhasesAndInfoDecideNothing) {
  TestRun run;
  for (const StepStatus status : {StepStatus::kFailed, StepStatus::kDeferred, StepStatus::kNotRun})
    run.add_phase("opt", status).required = Required::kNo;
  run.add_criterion("C-info", Severity::kInfo, CriterionVerdict::kFail);
  EXPECT_EQ(run.verdict().exit, 0);
}

TEST(Decide, MissingHardwareTurnsItsBlockersIntoConditions) {
  TestRun run;
  kRows.back().inject(run);
  run.add_criterion("C-gpu", Severity::kBlocker, CriterionVerdict::kNotEvaluated, "gpu");
  const Verdict v = run.verdict();
  EXPECT_EQ(v.exit, 7);
  EXPECT_THAT(v.conditions, testing::Contains(HasSubstr("C-gpu NOT_EVALUATED")));
  EXPECT_THAT(v.conditions, testing::Contains(HasSubstr("P-gpu DEFERRED (GPU_COUNT)")));
}

TEST(Decide, BusyHardwareIsNotMissingHardware) {
  TestRun run;
  kRows.back().inject(run);
  run.phases.back().cause = "GPU_NOT_FREE";
  EXPECT_EQ(run.verdict().exit, 5);
  for (const char* cause : {"GPU_NOT_FREE", "DATA_MISSING", "", "TIMEOUT"})
    EXPECT_FALSE(is_missing_hardware(cause)) << cause;
  for (const char* cause : {"GPU_COUNT", "GPU_SKU_MISMATCH", "GPU_CC"})
    EXPECT_TRUE(is_missing_hardware(cause)) << cause;
}

/// A phase for 4 GPUs on a machine with 2, and a criterion of it.
TestRun on_two_gpus(StepStatus status, const char* cause) {
  TestRun run;
  PhaseResult& phase = run.add_phase("scale_4", status);
  phase.required = Required::kBySize;
  phase.cause = cause;
  run.gpus = 2;
  run.add_criterion("C-4", Severity::kBlocker, CriterionVerdict::kNotEvaluated, "scale_4");
  run.add_criterion("C-4m", Severity::kMajor, CriterionVerdict::kNotEvaluated, "scale_4");
  return run;
}

TEST(Decide, APhaseOfLargerMachinesIsOutsideTheScope) {
  const Verdict v = on_two_gpus(StepStatus::kDeferred, "GPU_COUNT").verdict();
  EXPECT_EQ(v.word, "GO");
  EXPECT_EQ(v.scope, "no GPU statement Decided for 2 GPUs; no statement about more (scale_4).");
  EXPECT_THAT(v.weakest, HasSubstr("C-ok PASS"));
}

TEST(Decide, APhaseOfLargerMachinesIsRequiredWhereItsSizeIs) {
  EXPECT_EQ(on_two_gpus(StepStatus::kFailed, "HANG").verdict().exit, 1);
  EXPECT_EQ(on_two_gpus(StepStatus::kCompleted, "").verdict().exit, 4) << "C-4 has no figure";
  EXPECT_EQ(on_two_gpus(StepStatus::kNotRun, "UPSTREAM").verdict().exit, 5);
  for (const char* cause : {"DATA_MISSING", "GPU_NOT_FREE", "GPU_CC", "GPU_SKU_MISMATCH", ""})
    EXPECT_EQ(on_two_gpus(StepStatus::kDeferred, cause).verdict().exit, 5) << cause;
  TestRun failed = on_two_gpus(StepStatus::kDeferred, "GPU_COUNT");
  failed.criteria[1].verdict = CriterionVerdict::kFail;
  EXPECT_EQ(failed.verdict().exit, 1) << "a figure that is there decides";
}

TEST(Decide, IfHardwarePhaseThatFailedIsRequired) {
  TestRun run;
  run.add_phase("gpu", StepStatus::kFailed).required = Required::kIfHardware;
  EXPECT_EQ(run.verdict().exit, 1);
}

TEST(Decide, RuleNamesWhatDecided) {
  TestRun run;
  for (const char* id : {"C-a", "C-b", "C-c", "C-d"})
    run.add_criterion(id, Severity::kBlocker, CriterionVerdict::kFail);
  EXPECT_EQ(
      run.verdict().rule,
      "a blocker FAILs, or a required phase FAILED: C-a FAIL; C-b FAIL; C-c FAIL; and 1 more");
}

TEST(Decide, TheGravestConditionComesFirst) {
  TestRun run;
  run.add_criterion("C-a", Severity::kMajor, CriterionVerdict::kNotEvaluated);
  run.add_criterion("C-b", Severity::kMajor, CriterionVerdict::kInconclusive);
  run.add_criterion("C-c", Severity::kMajor, CriterionVerdict::kFail);
  EXPECT_THAT(run.verdict().conditions,
              testing::ElementsAre(HasSubstr("C-c FAIL"), HasSubstr("C-b INCONCLUSIVE"),
                                   HasSubstr("C-a NOT_EVALUATED")));
}

CriterionResult& passing(TestRun& run, const std::string& id, double observed, double threshold) {
  CriterionResult& c = run.add_criterion(id, Severity::kBlocker, CriterionVerdict::kPass);
  c.op = ">=";
  c.observed = observed;
  c.threshold = threshold;
  c.margin = observed - threshold;
  return c;
}

TEST(Weakest, SmallestRelativeMarginWhenAllPass) {
  TestRun run;
  passing(run, "C-wide", 300, 100);
  passing(run, "C-tight", 1.62, 1.5);
  EXPECT_EQ(run.verdict().weakest, "C-tight PASS: reason of C-tight (margin 8 %)");
}

TEST(Weakest, ACountThatEqualsItsPlanIsNoWeakPoint) {
  TestRun run;
  passing(run, "C-cases", 59, 59).unit = "count";
  passing(run, "C-speed", 1.62, 1.5);
  EXPECT_THAT(run.verdict().weakest, HasSubstr("C-speed"));
}

TEST(Weakest, WorstVerdictThenSeverity) {
  TestRun run;
  passing(run, "C-tight", 1.62, 1.5);
  run.add_criterion("C-info", Severity::kInfo, CriterionVerdict::kFail);
  EXPECT_THAT(run.verdict().weakest, HasSubstr("C-tight"));  // information never is the weakest
  run.add_criterion("C-major", Severity::kMajor, CriterionVerdict::kNotEvaluated);
  EXPECT_THAT(run.verdict().weakest, HasSubstr("C-major NOT_EVALUATED"));
  run.add_criterion("C-wrong", Severity::kMajor, CriterionVerdict::kFail);
  EXPECT_THAT(run.verdict().weakest, HasSubstr("C-wrong FAIL"));
  run.add_criterion("C-open", Severity::kBlocker, CriterionVerdict::kInconclusive);
  EXPECT_THAT(run.verdict().weakest, HasSubstr("C-open INCONCLUSIVE"));
  run.add_phase("hung", StepStatus::kFailed).cause = "HANG";
  EXPECT_EQ(run.verdict().weakest, "P-hung FAILED: HANG");
  run.add_criterion("C-bad", Severity::kBlocker, CriterionVerdict::kFail);
  EXPECT_THAT(run.verdict().weakest, HasSubstr("C-bad FAIL"));
}

TEST(Weakest, NaNMarginIsWeakestNotStrongest) {
  TestRun run;
  passing(run, "C-tight", 1.62, 1.5);
  passing(run, "C-nan", 2, 1).margin = NAN;
  EXPECT_THAT(run.verdict().weakest, HasSubstr("C-nan"));
}

TEST(Weakest, NoCriteria) {
  TestRun run;
  run.criteria.clear();
  EXPECT_EQ(run.verdict().weakest, "no criterion was judged");
}

}  // namespace
}  // namespace harness
