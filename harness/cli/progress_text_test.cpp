#include "harness/cli/progress_text.h"

#include <gtest/gtest.h>

namespace harness::cli {
namespace {

PlannedPhase phase(double minutes) {
  PlannedPhase phase;
  phase.minutes = minutes;
  return phase;
}

TEST(ProgressText, BarsAndCuts) {
  EXPECT_EQ(bar(1, 2, 4), "[##..]");
  EXPECT_EQ(bar(9, 2, 4), "[####]") << "a worker may count on";
  EXPECT_EQ(bar(-9, 2, 4), "[....]");
  EXPECT_EQ(bar(3, 0, 4), "");
  EXPECT_EQ(fit("héllo", 5), "héllo");
  EXPECT_EQ(fit("héllo", 3), "hé…");
  EXPECT_EQ(fit("hello", 0), "hello");
}

TEST(ProgressText, ABeatIsWhatItKnows) {
  EXPECT_EQ(
      beat_text({.step = 3, .of = 40, .at = "forward", .rate = 1200, .rate_unit = "tok_s"}, 12),
      "step 3/40 forward, 1200 tok/s, 12 s left");
  EXPECT_EQ(beat_text({.step = 3, .of = 0, .at = "step"}, 0), "step 3");
  EXPECT_EQ(beat_text({.step = 3, .of = 4, .at = ""}, -1), "step 3/4") << "a time that is over";
}

TEST(ProgressText, WhatAWorkerWritesStaysText) {
  const std::string text =
      beat_text({.step = 1, .of = 2, .at = "\x1b[2J\n\r", .rate = 1, .rate_unit = "\x1b]0;x\a"}, 0);
  EXPECT_EQ(text.find_first_of("\x1b\n\r\a"), std::string::npos) << text;
}

TEST(ProgressText, TheTimeLeftFollowsThePace) {
  Plan plan;
  plan.phases = {phase(1), phase(2), phase(4)};
  RunClock clock(plan);
  EXPECT_DOUBLE_EQ(clock.left_s(0), 420);
  clock.start(plan.phases[0]);
  EXPECT_DOUBLE_EQ(clock.left_s(20), 400);
  EXPECT_DOUBLE_EQ(clock.left_s(1000), 360) << "a phase that takes longer has nothing left";
  clock.end(plan.phases[0], 30);
  clock.start(plan.phases[1]);
  EXPECT_DOUBLE_EQ(clock.left_s(10), 0.5 * 240 + 50) << "twice as fast as planned";
  clock.end(plan.phases[1], 60);
  clock.start(plan.phases[2]);
  clock.end(plan.phases[2], 120);
  EXPECT_DOUBLE_EQ(clock.left_s(0), 0);
}

/// Phases that ended at once because they were reused do not promise that the rest is free.
TEST(ProgressText, AShortPastReportsNothingAndAStrangeOneOnlyTenfold) {
  Plan plan;
  plan.phases = {phase(0.05), phase(10), phase(10)};
  RunClock clock(plan);
  clock.start(plan.phases[0]);
  clock.end(plan.phases[0], 300);
  EXPECT_DOUBLE_EQ(clock.left_s(0), 1200) << "three planned seconds are no pace";
  clock.start(plan.phases[1]);
  clock.end(plan.phases[1], 0);
  EXPECT_DOUBLE_EQ(clock.left_s(0), 300.0 / 603 * 600);
  EXPECT_DOUBLE_EQ(RunClock(Plan()).left_s(5), 0);
}

}  // namespace
}  // namespace harness::cli
