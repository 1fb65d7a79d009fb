#include "harness/evidence/derive/ab_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

/// A mini run whose phase `speed` may look twice and confirms; its criterion asks for 1.5.
struct Staged {
  explicit Staged(double speedup) {
    injected.max_processes = 20;
    injected.confirm = true;
    injected.speedup = speedup;
    write_mini_run(run_dir.path(), injected);
  }

  /// Writes processes first..last of `letter` with the given speed-up, in alternation with `other`.
  void add(char letter, int first, int last, double speedup, double other = 0) {
    for (int i = first; i <= last; ++i) {
      injected.speedup = other > 0 && i % 2 == 1 ? other : speedup;
      write_mini_process(run_dir.path(),
                         letter + std::string(i < 10 ? "0" : "") + std::to_string(i), injected);
    }
  }

  /// Ids of the processes asked for beyond the first ten.
  std::vector<std::string> further() const {
    const RunFiles files = read_run_files(RunFolder(run_dir.path()));
    for (const PlannedPhase& phase : files.plan.phases) {
      if (phase.id != "speed") continue;
      std::vector<std::string> ids;
      for (const PlannedGroup& group : asked_groups(run_dir.path(), phase)) ids.push_back(group.id);
      ids.erase(ids.begin(), ids.begin() + 10);
      return ids;
    }
    return {"no phase"};
  }

  CriterionResult judged() const {
    for (const CriterionResult& c : derive(run_dir.path()).criteria)
      if (c.id == "C-SPEED") return c;
    return {};
  }

  Metric figure() const {
    for (const Metric& m : derive(run_dir.path()).metrics)
      if (m.name == "speed.v2_vs_v1.speedup_ratio") return m;
    return {};
  }

  std::vector<std::string> problems() const {
    std::vector<std::string> texts;
    for (const EvidenceError& e : derive_all(RunFolder(run_dir.path())).problems)
      texts.emplace_back(e.what());
    return texts;
  }

  TempDir run_dir;
  MiniRun injected;
};

TEST(AbStages, ADecidedPassAsksForNothing) {
  const Staged run(2);
  EXPECT_THAT(run.further(), IsEmpty());
  EXPECT_EQ(run.judged().verdict, CriterionVerdict::kPass);
  EXPECT_THAT(run.problems(), IsEmpty());
}

TEST(AbStages, AFailureIsMeasuredOnceMoreAndCountsWhenBothAgree) {
  Staged run(1.2);
  EXPECT_THAT(run.further(), SizeIs(10));
  EXPECT_THAT(run.further(), Each(StartsWith("c")));
  EXPECT_EQ(run.judged().verdict, CriterionVerdict::kInconclusive) << run.judged().reason;
  EXPECT_THAT(run.problems(), SizeIs(10)) << "ten required, none found, recorded as COMPLETED";
  run.add('c', 1, 10, 1.25);
  EXPECT_THAT(run.further(), SizeIs(10));
  EXPECT_EQ(run.judged().verdict, CriterionVerdict::kFail);
  EXPECT_THAT(run.judged().reason, HasSubstr("confirmed by a second measurement"));
  EXPECT_THAT(run.problems(), IsEmpty());
  EXPECT_EQ(run.figure().n, 10) << "the confirmation is no part of the first measurement";
  EXPECT_NEAR(run.figure().details["confirmation"]["value"].get<double>(), 1.25, 0.01);
}

TEST(AbStages, AFailureThatDoesNotComeBackIsUndecidedNeverGreen) {
  Staged run(1.2);
  run.add('c', 1, 10, 2);
  const CriterionResult judged = run.judged();
  EXPECT_EQ(judged.verdict, CriterionVerdict::kInconclusive);
  EXPECT_THAT(judged.reason, HasSubstr("does not confirm it, PASS"));
  EXPECT_THAT(run.problems(), IsEmpty());
}

TEST(AbStages, AnUndecidedLookDoublesOnceAndThenEnds) {
  Staged run(2);
  run.add('g', 1, 10, 1.2, 1.9);
  ASSERT_EQ(run.further().size(), 10u);
  EXPECT_EQ(run.further().front(), "g11");
  run.add('g', 11, 20, 1.2, 1.9);
  EXPECT_THAT(run.further(), SizeIs(10)) << "the budget is spent, and nothing failed";
  EXPECT_EQ(run.judged().verdict, CriterionVerdict::kInconclusive);
  EXPECT_EQ(run.figure().n, 20);
  EXPECT_THAT(run.problems(), IsEmpty());
}

TEST(AbStages, AFailureOfTheSecondLookIsConfirmedWithAllItsProcesses) {
  Staged run(2);
  run.add('g', 1, 10, 1.2, 1.52);
  run.add('g', 11, 20, 1.2);
  ASSERT_EQ(run.further().size(), 30u) << run.judged().reason;
  run.add('c', 1, 20, 1.2);
  EXPECT_EQ(run.judged().verdict, CriterionVerdict::kFail) << run.judged().reason;
  EXPECT_EQ(run.figure().details["confirmation"]["n"], 20);
}

TEST(AbStages, AFailureWithinTheNoiseOfIdenticalArmsIsLookedAtAgain) {
  Staged run(1.2);
  run.injected.aa_factor = 1.4;
  run.add('g', 1, 10, 1.2);
  ASSERT_EQ(run.further().size(), 10u);
  EXPECT_EQ(run.further().front(), "g11");
  EXPECT_THAT(run.figure().null_reason, HasSubstr("g11")) << "the look that was asked for is due";
  run.add('g', 11, 20, 1.2);
  EXPECT_EQ(run.figure().verdict, "INCONCLUSIVE");
  ASSERT_EQ(run.further().size(), 30u) << "the budget is spent, and it still fails";
  EXPECT_EQ(run.further().back(), "c20");
  run.add('c', 1, 20, 1.2);
  EXPECT_EQ(run.judged().verdict, CriterionVerdict::kFail) << run.judged().reason;
  EXPECT_THAT(run.problems(), IsEmpty());

  run.injected.aa_factor = 1.1;  // 1.2 is more than that
  run.add('g', 1, 10, 1.2);
  EXPECT_EQ(run.further().front(), "c01");
}

TEST(AbStages, RefusesLooksThatWereNotAskedFor) {
  Staged run(2);
  run.add('g', 11, 20, 2);
  EXPECT_THAT(run.problems(), SizeIs(10));
  EXPECT_THAT(run.problems(), Each(HasSubstr("asks for none")));
  EXPECT_EQ(run.figure().n, 10);
}

TEST(AbStages, EachLookPaysForTheOthers) {
  const Staged run(2);
  EXPECT_EQ(run.figure().details["looks"]["planned"], 2);
  EXPECT_DOUBLE_EQ(run.figure().details["looks"]["level_of_each"].get<double>(), 0.995);
  TempDir plain;
  write_mini_run(plain.path());
  for (const Metric& m : derive(plain.path()).metrics)
    EXPECT_FALSE(m.details.contains("looks")) << m.name;
}

TEST(AbStages, ExactFiguresCountEveryProcess) {
  Staged run(1.2);
  run.add('c', 1, 10, 1.2);
  const Results results = derive(run.run_dir.path());
  for (const PhaseResult& phase : results.phases)
    if (phase.name == "speed") {
      EXPECT_EQ(phase.cases_planned, 20);
      EXPECT_EQ(phase.cases_ok, 20);
    }
}

}  // namespace
}  // namespace harness
