#include "harness/cli/time_left.h"

#include <gmock/gmock.h>

#include "base/testing/paths.h"
#include "harness/cli/testing.h"
#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/derive/derive.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness::cli {
namespace {

PlannedPhase phase(const std::string& id, double minutes) {
  PlannedPhase phase;
  phase.id = id;
  phase.minutes = minutes;
  return phase;
}

/// Runs through a plan whose phases take `seconds`; from the third phase on the time left must lie
/// within a factor of two of what is really left.
void expect_within_two(const Plan& plan, const std::map<std::string, double>& measured,
                       const std::vector<double>& seconds) {
  TimeLeft clock(plan, measured);
  double really = 0;
  for (const double each : seconds) really += each;
  for (size_t i = 0; i < plan.phases.size(); ++i) {
    clock.start(plan.phases[i]);
    if (i >= 2) {
      EXPECT_GE(clock.seconds(0), really / 2) << i;
      EXPECT_LE(clock.seconds(0), really * 2) << i;
    }
    clock.end(plan.phases[i], seconds[i]);
    really -= seconds[i];
  }
  EXPECT_DOUBLE_EQ(clock.seconds(0), 0);
}

TEST(TimeLeft, FollowsThePaceOfWhatHasEnded) {
  Plan plan;
  plan.phases = {phase("a", 1), phase("b", 2), phase("c", 4)};
  TimeLeft clock(plan);
  EXPECT_DOUBLE_EQ(clock.seconds(0), 420);
  clock.start(plan.phases[0]);
  EXPECT_DOUBLE_EQ(clock.seconds(20), 400);
  EXPECT_DOUBLE_EQ(clock.seconds(1000), 360) << "a phase that takes longer has nothing left";
  clock.end(plan.phases[0], 18);
  const double pace = (18 + 42.0) / (60 + 42.0);
  EXPECT_DOUBLE_EQ(clock.seconds(0), pace * 360);
  EXPECT_DOUBLE_EQ(TimeLeft(Plan()).seconds(5), 0);
}

TEST(TimeLeft, IsWithinAFactorOfTwoFromTheThirdPhaseOn) {
  Plan plan;
  plan.phases = {phase("a", 0.1), phase("b", 0.1), phase("c", 2), phase("d", 3), phase("e", 1)};
  expect_within_two(plan, {}, {1, 30, 100, 150, 70});
  expect_within_two(plan, {}, {0.1, 0.1, 130, 160, 50});
  // Minutes that are ten times too long do not matter where the phases ran here before.
  const std::map<std::string, double> before = {
      {"a", 1.2}, {"b", 4}, {"c", 11}, {"d", 20}, {"e", 5}};
  expect_within_two(plan, before, {2.6, 3, 14, 25, 6});
}

/// Short phases that took ten times as long as planned do not make a run of 110 s one of ten
/// minutes.
TEST(TimeLeft, AShortPastDoesNotMultiplyTheRest) {
  Plan plan;
  plan.phases = {phase("a", 0.05), phase("b", 0.05), phase("c", 1.2)};
  TimeLeft clock(plan);
  for (size_t i = 0; i < 2; ++i) clock.start(plan.phases[i]), clock.end(plan.phases[i], 15);
  EXPECT_LT(clock.seconds(0), 240);
}

/// Fifty thousand steps where the runbook plans a hundred: the estimate of the process counts.
TEST(TimeLeft, AProcessThatExpectsMoreThanThePlanIsBelieved) {
  Plan plan;
  plan.phases = {phase("a", 1), phase("b", 1)};
  TimeLeft clock(plan);
  clock.start(plan.phases[0]);
  EXPECT_DOUBLE_EQ(clock.seconds(20, 900), 960);
  EXPECT_DOUBLE_EQ(clock.seconds(20, 10), 100) << "it may be in its first round of several";
}

TEST(TimeLeft, PhasesThatDoNotRunTakeNoTime) {
  Plan plan;
  plan.phases = {phase("a", 1), phase("b", 1)};
  plan.phases[1].decision = Decision::kSkip;
  EXPECT_DOUBLE_EQ(TimeLeft(plan, {{"b", 500}}).seconds(0), 60);
}

TEST(MeasuredSeconds, AreOfTheSameWorkInTheNewestRun) {
  Plan now;
  now.phases = {phase("a", 1), phase("b", 1), phase("c", 1)};
  now.phases[1].args["steps"] = 100;
  Plan other = now;
  other.phases[1].args["steps"] = 5;
  const std::vector<EarlierRun> earlier = {{other, {{"a", 3}, {"b", 1}}},
                                           {now, {{"a", 9}, {"b", 40}}}};
  EXPECT_THAT(measured_seconds(now, earlier),
              testing::ElementsAre(std::pair("a", 3.0), std::pair("b", 40.0)));
  now.phases[0].groups.resize(2);
  EXPECT_FALSE(measured_seconds(now, earlier).contains("a")) << "other processes, other work";
}

TEST(EarlierRuns, AreThoseOfTheSameRunbookAndHardware) {
  const TempDir dir;
  const Written written = finish_run(dir / "runs/one");
  const std::string here = hardware_key(written.results.environment);
  EXPECT_EQ(earlier_runs(dir / "runs", "mini", here).size(), 1U);
  EXPECT_FALSE(earlier_runs(dir / "runs", "mini", here)[0].seconds.empty());
  EXPECT_TRUE(earlier_runs(dir / "runs", "mini", "another machine").empty());
  EXPECT_TRUE(earlier_runs(dir / "runs", "other", here).empty());
  EXPECT_TRUE(earlier_runs(dir / "none", "mini", here).empty());
  std::filesystem::resize_file(dir / "runs/one/results.json", 100);
  EXPECT_TRUE(earlier_runs(dir / "runs", "mini", here).empty()) << "damaged runs are not used";
}

TEST(AboutLeft, IsAsRoughAsItIs) {
  EXPECT_EQ(about_left(0.4), "");
  EXPECT_EQ(about_left(2.61), "about 5 s left");
  EXPECT_EQ(about_left(42), "about 40 s left");
  EXPECT_EQ(about_left(130), "about 2 min left");
  EXPECT_EQ(about_left(9000), "about 2.5 h left");
}

}  // namespace
}  // namespace harness::cli
