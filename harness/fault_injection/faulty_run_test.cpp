#include "harness/fault_injection/faulty_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using testing::HasSubstr;

Results some_results() {
  Results results;
  for (const char* name : {"a", "b"}) {
    PhaseResult phase;
    phase.id = std::string("P-") + name;
    phase.name = name;
    phase.status = StepStatus::kCompleted;
    results.phases.push_back(phase);
  }
  CriterionResult criterion;
  criterion.id = "C-b";
  criterion.phase = "b";
  criterion.verdict = CriterionVerdict::kPass;
  results.criteria = {criterion};
  return results;
}

Finding finding(const std::string& id, const std::string& fact) {
  return {id, "X", "s", fact, "", "", Priority::kImmediate};
}

TEST(BlastRadius, WhatHappensInTheFaultedPhaseIsItsOwn) {
  Results faulted = some_results();
  faulted.phases[0].status = StepStatus::kFailed;
  faulted.findings = {finding("F-a.X", "P-a")};
  EXPECT_EQ(change_outside(some_results(), faulted, "a"), "");
}

TEST(BlastRadius, AnyOtherPhaseCriterionOrFindingIsNamed) {
  Results phase = some_results(), criterion = some_results(), extra = some_results();
  phase.phases[1].cause = "HANG";
  criterion.criteria[0].verdict = CriterionVerdict::kInconclusive;
  extra.findings = {finding("F-b.X", "P-b")};
  EXPECT_THAT(change_outside(some_results(), phase, "a"), HasSubstr("P-b is COMPLETED HANG"));
  EXPECT_THAT(change_outside(some_results(), criterion, "a"), HasSubstr("C-b is INCONCLUSIVE"));
  EXPECT_THAT(change_outside(some_results(), extra, "a"),
              HasSubstr("F-b.X is X, without the fault absent"));
  EXPECT_THAT(change_outside(extra, some_results(), "a"), HasSubstr("F-b.X is absent"));
}

TEST(BlastRadius, FindingsOfItsCriteriaBelongToThePhase) {
  Results faulted = some_results();
  faulted.findings = {finding("F-C-b.AB_VERDICT", "C-b")};
  EXPECT_EQ(change_outside(some_results(), faulted, "b"), "");
  EXPECT_NE(change_outside(some_results(), faulted, "a"), "");
}

TEST(FaultyRun, WithoutAFormNothingIsCaught) {
  EXPECT_FALSE(inject_forms({})({}).as_wanted);
  EXPECT_FALSE(control_forms({})({}).as_wanted);
}

}  // namespace
}  // namespace harness
