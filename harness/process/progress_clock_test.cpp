#include "harness/process/progress_clock.h"

#include <gtest/gtest.h>

namespace harness {
namespace {

base::protocol::Beat beat(int64_t step, const std::string& at = "step",
                          std::optional<double> rate = {}) {
  return {.case_id = "a", .step = step, .of = 100, .at = at, .rate = rate, .rate_unit = "tok_s"};
}

TEST(ProgressClockTest, FirstStepAllowanceUntilThreeGapsAreKnown) {
  ProgressClock clock({.first_step_s = 300, .stall_floor_s = 30, .stall_factor = 5}, 0);
  EXPECT_FALSE(clock.stalled(300));
  EXPECT_TRUE(clock.stalled(300.1));
  for (int i = 1; i <= 3; i++) clock.beat(i, beat(i));
  EXPECT_EQ(clock.allowance_s(), 300);  // two gaps
  clock.beat(4, beat(4));
  EXPECT_EQ(clock.allowance_s(), 30);  // max(30, 5 x 1)
  EXPECT_FALSE(clock.stalled(34));
  EXPECT_TRUE(clock.stalled(34.1));
}

TEST(ProgressClockTest, AllowanceFollowsSlowSteps) {
  ProgressClock clock({}, 0);
  for (int i = 1; i <= 4; i++) clock.beat(i * 100.0, beat(i));
  EXPECT_EQ(clock.allowance_s(), 500);
  EXPECT_EQ(clock.eta_s(), 96 * 100.0);
}

TEST(ProgressClockTest, MarksInsideAStepAreProgressButNotGaps) {
  ProgressClock clock({}, 0);
  for (int i = 0; i < 4; i++) {  // a step of 100 s that is nearly all backward
    clock.beat(i * 100 + 1, beat(i, "load"));
    clock.beat(i * 100 + 2, beat(i, "forward"));
    clock.beat(i * 100 + 99, beat(i, "backward"));
  }
  EXPECT_EQ(clock.allowance_s(), 500);
  clock.beat(401, beat(4, "load"));
  EXPECT_FALSE(clock.stalled(401 + 499));
}

TEST(ProgressClockTest, LinesOfOtherTypesAreProgress) {
  ProgressClock clock({.first_step_s = 10}, 0);
  clock.progress(9);
  EXPECT_FALSE(clock.stalled(19));
}

TEST(ProgressClockTest, AnotherCaseGetsItsOwnFirstStep) {
  ProgressClock clock({}, 0);
  for (int i = 1; i <= 5; i++) clock.beat(i, beat(i));
  auto other = beat(1);
  other.case_id = "b";
  clock.beat(6, other);
  EXPECT_EQ(clock.allowance_s(), 300);
}

TEST(ProgressClockTest, SlowIsTheMedianRateUnderTheFloor) {
  ProgressClock clock({.rate_floor = 50}, 0);
  for (int i = 1; i <= 4; i++) clock.beat(i * 10.0, beat(i, "step", 20));
  ASSERT_TRUE(clock.slow());
  EXPECT_EQ(clock.slow()->rate, 20);
  EXPECT_EQ(clock.slow()->unit, "tok_s");
  EXPECT_EQ(clock.slow()->eta_s, 960);
  for (int i = 5; i <= 20; i++) clock.beat(i * 10.0, beat(i, "step", 60));
  EXPECT_FALSE(clock.slow());  // a slow start is forgiven
}

TEST(ProgressClockTest, WithoutAFloorNothingIsSlow) {
  ProgressClock clock({}, 0);
  for (int i = 1; i <= 9; i++) clock.beat(i * 100.0, beat(i, "step", 0.001));
  EXPECT_FALSE(clock.slow());
}

}  // namespace
}  // namespace harness
