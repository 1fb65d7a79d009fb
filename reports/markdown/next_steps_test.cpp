// Next steps of a report: one for everything that is open, none for what is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/render.h"
#include "reports/testing.h"

namespace reports {
namespace {

using harness::CriterionVerdict;
using harness::Results;
using harness::StepStatus;
using testing::HasSubstr;
using testing::Not;
using testing_data::criterion;
using testing_data::go;
using testing_data::section;

std::string rendered(const Results& r) { return render("report.md", r); }

TEST(NextSteps, AStepOfLargerMachinesIsOutsideTheScopeAndHasNone) {
  for (const auto& [cause, consequence] :
       {std::pair{"GPU_COUNT", "| none: outside the scope of this verdict"},
        {"DATA_MISSING", "| leaves the verdict undecided"}}) {
    Results r = go();
    r.criteria = {criterion("C-x", CriterionVerdict::kNotEvaluated)};
    r.phases.resize(1);
    r.phases[0].name = "p", r.phases[0].cause = cause;
    r.phases[0].required = harness::Required::kBySize;
    r.phases[0].status = StepStatus::kDeferred;
    const std::string open = section(rendered(r), "Open, failed, deviating");
    const std::string row = open.substr(std::min(open.find("`C-x`"), open.size()));
    EXPECT_THAT(row.substr(0, row.find('\n')), HasSubstr(consequence)) << cause;
    EXPECT_EQ(section(rendered(r), "Next steps").find("Run step") == std::string::npos,
              cause == std::string("GPU_COUNT"));
  }
}

/// What is open has a next step: a case that broke off, and steps that were left out.
TEST(NextSteps, WhatWasNotEvaluatedHasOne) {
  Results r = go();
  r.criteria = {criterion("C-x", CriterionVerdict::kNotEvaluated)};
  r.criteria[0].reason = "case text failed in g01: no corpus at .data/nothing";
  r.phases.resize(1);
  r.phases[0].name = "p";
  r.phases[0].status = StepStatus::kCompleted;
  EXPECT_THAT(section(rendered(r), "Next steps"),
              HasSubstr("1. **Decide** `C-x`: case text failed in g01: no corpus at"));
  r.phases[0].status = StepStatus::kNotRun;
  r.phases[0].cause = "SKIPPED";
  r.phases[0].required = harness::Required::kAlways;
  const std::string steps = section(rendered(r), "Next steps");
  EXPECT_THAT(steps,
              HasSubstr("**Run** the 1 required step that was left out: `nsa-validate --runbook"));
  EXPECT_THAT(steps, Not(HasSubstr("Decide")));
}

/// To run it again decides nothing.
TEST(NextSteps, WhatLacksABaselineIsDecidedByPromotingARun) {
  Results r = go();
  r.criteria = {criterion("C-x", CriterionVerdict::kNotEvaluated),
                criterion("C-y", CriterionVerdict::kNotEvaluated)};
  r.criteria[0].reason = "BASELINE_INVALID: no baseline of 'p.x'";
  r.criteria[1].reason = "case text failed in g01";
  r.phases.resize(1);
  r.phases[0].name = "p";
  r.phases[0].status = StepStatus::kCompleted;
  const std::string steps = section(rendered(r), "Next steps");
  EXPECT_THAT(steps,
              HasSubstr("**Set a baseline** for `C-x` from this run, in its folder, if later"));
  EXPECT_THAT(steps, HasSubstr("`nsa-validate baseline promote . --reason TEXT --write`"));
  EXPECT_THAT(steps, HasSubstr("2. **Decide** `C-y`: case text failed"));
  r.deviations.resize(1);
  EXPECT_THAT(section(rendered(r), "Next steps"),
              HasSubstr("by a run without a deviation: BASELINE_INVALID: no baseline of 'p.x': "
                        "`nsa-validate baseline promote RUN --reason"));
}

/// An A/B has used up its processes when it is still open; other figures have no such number.
TEST(NextSteps, AnOpenComparisonIsDecidedByTwiceAsManyProcesses) {
  Results r = go();
  r.criteria = {criterion("C-x", CriterionVerdict::kInconclusive)};
  EXPECT_THAT(section(rendered(r), "Next steps"), HasSubstr("--only p`\n"));
  r.metrics = {testing_data::comparison("p.x_count", "INCONCLUSIVE", 1)};
  r.metrics[0].n = 20;
  EXPECT_THAT(section(rendered(r), "Next steps"),
              HasSubstr("1. **Decide** `C-x` with more samples: reason of C-x: `nsa-validate "
                        "--runbook smoke --only p --set p.max_processes=40`"));
  r.findings = {{"F-x", "THROTTLED", "clocks differ", "M-p.x_count", "power", "lock its clocks"}};
  EXPECT_THAT(section(rendered(r), "Next steps"),
              HasSubstr("**Decide** `C-x` with locked clocks (those of its arms differed): "));
}

TEST(NextSteps, AFindingNamesWhatShowsIt) {
  Results r = go();
  r.findings = {
      {"F-p.A", "A", "seen", "M-p.x_count", "because", "do that", harness::Priority::kImmediate}};
  EXPECT_THAT(section(rendered(r), "Next steps"),
              HasSubstr("1. **A**, shown by `M-p.x_count`: do that: `nsa-validate explain F-p.A`"));
}

/// What decides the verdict comes first; a finding does where something failed, as its cause may
/// be.
TEST(NextSteps, AFindingStandsBehindWhatIsOpen) {
  Results r = go();
  r.findings = {
      {"F-p.A", "A", "seen", "M-p.x_count", "because", "do that", harness::Priority::kImmediate}};
  r.criteria = {criterion("C-x", CriterionVerdict::kInconclusive)};
  const std::string open = section(rendered(r), "Next steps");
  EXPECT_LT(open.find("**Decide** `C-x`"), open.find("**A**"));
  r.criteria.push_back(criterion("C-y", CriterionVerdict::kFail));
  const std::string failed = section(rendered(r), "Next steps");
  EXPECT_LT(failed.find("**Explain** `C-y`"), failed.find("**A**"));
  EXPECT_LT(failed.find("**A**"), failed.find("**Decide** `C-x`"));
}

TEST(NextSteps, NothingIsOpenOnlyWhereThatIsSo) {
  Results r = go();
  EXPECT_THAT(section(rendered(r), "Next steps"), HasSubstr("None: nothing is open."));
  r.criteria.push_back(criterion("C-i", CriterionVerdict::kFail, harness::Severity::kInfo));
  EXPECT_THAT(section(rendered(r), "Next steps"), HasSubstr("None: nothing that decides is open."));
  r.phases[0].status = StepStatus::kDeferred, r.phases[0].cause = "GPU_COUNT";
  r.phases[0].required = harness::Required::kBySize;
  EXPECT_THAT(section(rendered(r), "Next steps"), HasSubstr("what is open needs a larger one"));
  EXPECT_THAT(rendered(r), HasSubstr("every question that this machine decides is answered"));
}

TEST(NextSteps, OneOfTheRunbookIsLeftOutWhereAllItsCriteriaPass) {
  Results r = go();
  r.next_steps = {{"Count again", "nsa-validate --runbook smoke", {"C-x"}}};
  EXPECT_THAT(rendered(r), Not(HasSubstr("Count again")));
  r.criteria[0].verdict = CriterionVerdict::kNotEvaluated;
  EXPECT_THAT(rendered(r), HasSubstr("2. Count again"));
}

}  // namespace
}  // namespace reports
