#include "harness/runbook/plan/decide.h"

#include "harness/runbook/testing.h"

namespace harness {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// The result of decide_phase for one phase of a worker on cuda, with `need` planned before it.
struct Decided {
  PhaseSpec spec;
  PlannedPhase phase, need;
  Facts facts = {{"gpu.count", 1}};
  PhaseSelection selection;
  Plan plan;

  Decided() {
    spec.id = phase.id = "second";
    need.id = "first";
    phase.program = "nsa-worker";
    phase.device = "cuda";
  }
  const PlannedPhase& run() {
    plan.phases.push_back(need);
    decide_phase(spec, {"first"}, facts, selection, plan, phase);
    return phase;
  }
};

TEST(Decide, APhaseWithEverythingRunsWithoutAReason) {
  Decided one;
  EXPECT_EQ(one.run().decision, Decision::kRun);
  EXPECT_EQ(one.phase.cause + one.phase.reason, "");
  EXPECT_TRUE(one.plan.deviations.empty());
}

TEST(Decide, EveryProgramOnCudaNeedsAGpuAndTheBuiltinsDoNot) {
  for (const bool builtin : {false, true}) {
    Decided one;
    one.facts = {{"gpu.count", 0}};
    if (builtin) one.phase.program = "builtin";
    EXPECT_EQ(one.run().cause, builtin ? "" : "GPU_COUNT");
  }
  Decided cpu;
  cpu.facts = {{"gpu.count", 0}};
  cpu.phase.device = "cpu";
  EXPECT_EQ(cpu.run().decision, Decision::kRun);
}

TEST(Decide, MoreGpusThanOneStayAsked) {
  Decided one;
  one.spec.require = {{"gpu.count", ">=2"}};
  EXPECT_EQ(one.run().decision, Decision::kDefer);
  EXPECT_THAT(one.phase.reason, StartsWith("gpu.count is 1, want >=2"));
}

TEST(Decide, RanksThatSrunStartsNeedAnAllocation) {
  for (const int64_t nodes : {0, 2}) {
    Decided one;
    one.spec.launcher = "srun";
    one.facts["slurm.nodes"] = nodes;
    EXPECT_EQ(one.run().cause, nodes == 0 ? "NO_ALLOCATION" : "");
  }
  Decided unknown;
  unknown.spec.launcher = "srun";
  EXPECT_EQ(unknown.run().cause, "NO_ALLOCATION");
}

TEST(Decide, AProgramOfWhichNothingIsKnownIsNotMissing) {
  Decided unknown;
  EXPECT_EQ(unknown.run().decision, Decision::kRun);
  Decided missing;
  missing.facts["program.nsa-worker"] = false;
  EXPECT_EQ(missing.run().cause, "PROGRAM_MISSING");
  Decided other;
  other.facts["program.nsa-train"] = false;
  EXPECT_EQ(other.run().decision, Decision::kRun);
}

TEST(Decide, AllThatIsUnmetIsReportedAndTheFirstIsTheCause) {
  Decided one;
  one.spec.require = {{"cupti.ok", true}, {"data.local_text", true}};
  EXPECT_EQ(one.run().cause, "CUPTI_UNAVAILABLE");
  EXPECT_THAT(one.phase.reason, HasSubstr("cupti.ok is unknown"));
  EXPECT_THAT(one.phase.reason, HasSubstr("; data.local_text is unknown"));
}

TEST(Decide, WarnedPhasesRunWithADeviationThatReportsWhatIsUnmet) {
  Decided one;
  one.spec.require = {{"cupti.ok", true}};
  one.spec.on_unmet = OnUnmet::kWarn;
  EXPECT_EQ(one.run().decision, Decision::kRunWithDeviation);
  EXPECT_EQ(one.phase.cause, "");
  ASSERT_EQ(one.plan.deviations.size(), 1u);
  EXPECT_EQ(one.plan.deviations[0].what, "phase 'second' runs with an unmet requirement");
  EXPECT_EQ(one.plan.deviations[0].why, one.phase.reason);
}

/// Deferred with what it needs, so that the same machine lifts both; else not run at all.
TEST(Decide, APhaseFollowsTheOneItNeeds) {
  const auto behind = [](Decision decision) {
    Decided one;
    one.need.decision = decision;
    one.need.cause = "DATA_MISSING";
    one.need.reason = "no data";
    one.run();
    return one.phase;
  };
  EXPECT_EQ(behind(Decision::kRunWithDeviation).decision, Decision::kRun);
  EXPECT_EQ(behind(Decision::kDefer).decision, Decision::kDefer);
  EXPECT_EQ(behind(Decision::kDefer).cause, "DATA_MISSING");
  EXPECT_EQ(behind(Decision::kDefer).reason, "needs 'first', which does not run: no data");
  for (const Decision decision : {Decision::kFail, Decision::kSkip}) {
    EXPECT_EQ(behind(decision).decision, Decision::kSkip);
    EXPECT_EQ(behind(decision).cause, "UPSTREAM");
  }
}

TEST(Decide, AMissingNeedComesBeforeWhatTheMachineLacks) {
  Decided one;
  one.facts = {{"gpu.count", 0}};
  one.need.decision = Decision::kFail;
  one.spec.on_unmet = OnUnmet::kWarn;
  EXPECT_EQ(one.run().cause, "UPSTREAM");
  EXPECT_TRUE(one.plan.deviations.empty()) << "it does not run in spite of anything";
}

TEST(Decide, SelectionComesFirst) {
  Decided skipped;
  skipped.selection.skip = {"second"};
  skipped.facts = {{"gpu.count", 0}};
  skipped.need.decision = Decision::kDefer;
  EXPECT_EQ(skipped.run().cause, "SKIPPED");
  EXPECT_EQ(skipped.phase.reason, "left out by --skip second");
  ASSERT_EQ(skipped.plan.deviations.size(), 1u);
  EXPECT_EQ(skipped.plan.deviations[0].id, "D-skip.second");
  Decided others;
  others.selection.only = {"first", "third"};
  EXPECT_EQ(others.run().reason, "left out by --only first, third");
  Decided both;
  both.selection = {.only = {"second"}, .skip = {"second"}};
  EXPECT_EQ(both.run().reason, "left out by --skip second");
}

}  // namespace
}  // namespace harness
