#include "harness/training_comparison/loss_gap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using ::testing::HasSubstr;

/// Steps 1..n with loss base + slope * step.
LossCurve line(int64_t n, double base, double slope) {
  LossCurve curve;
  for (int64_t step = 1; step <= n; ++step) curve[step] = base + slope * static_cast<double>(step);
  return curve;
}

TEST(LossGap, MeanAndBandOfTheLastSteps) {
  // Differences 1.01 .. 1.40 over all 40 steps; of the last 40, one (2.5 %) is cut at either end.
  const LossGap gap = loss_gap(line(40, 3, 0.01), line(40, 2, 0), 40);
  EXPECT_EQ(gap.problem, "");
  EXPECT_EQ(gap.steps, 40);
  EXPECT_NEAR(gap.mean_nat, 1.205, 1e-12);
  EXPECT_NEAR(gap.lo_nat, 1.02, 1e-12);
  EXPECT_NEAR(gap.hi_nat, 1.39, 1e-12);
  EXPECT_NEAR(loss_gap(line(40, 3, 0.01), line(40, 2, 0), 2).mean_nat, 1.395, 1e-12);
}

TEST(LossGap, CurvesThatDoNotMatchGiveNone) {
  EXPECT_THAT(loss_gap(line(40, 3, 0), line(39, 2, 0), 10).problem,
              HasSubstr("end at step 40 and step 39"));
  EXPECT_THAT(loss_gap({}, {}, 10).problem, HasSubstr("end at no step and no step"));
  EXPECT_THAT(loss_gap(line(5, 3, 0), line(5, 2, 0), 10).problem, HasSubstr("step -4 of the last"));
  LossCurve holed = line(20, 1, 0);
  holed.erase(15);
  EXPECT_THAT(loss_gap(holed, line(20, 1, 0), 10).problem, HasSubstr("step 15 of the last 10"));
  EXPECT_EQ(loss_gap(holed, line(20, 1, 0), 5).problem, "");
}

}  // namespace
}  // namespace harness
