#include "harness/stats/within_run.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "harness/stats/random.h"

namespace harness::stats {
namespace {

/// Step times around 1 with 2 % noise; `rho` is the correlation of neighbours.
std::vector<double> steps(size_t count, double rho, uint64_t seed) {
  Random random(seed);
  std::vector<double> times;
  double state = random.normal();
  for (size_t i = 0; i < count; ++i) {
    times.push_back(1 + .02 * state);
    state = rho * state + std::sqrt(1 - rho * rho) * random.normal();
  }
  return times;
}

TEST(WithinRun, EqualStepsGiveExactlyTheGuardBand) {
  const WithinRun run = within_run_mean(std::vector<double>(100, 2.0), .02);
  EXPECT_DOUBLE_EQ(run.mean, 2);
  ASSERT_TRUE(run.verdict_interval && run.shown_interval);
  EXPECT_DOUBLE_EQ(run.verdict_interval->lo, 2 * .98);
  EXPECT_DOUBLE_EQ(run.verdict_interval->hi, 2 * 1.02);
}

TEST(WithinRun, FewStepsHaveNoInterval) {
  const WithinRun run = within_run_mean(std::vector<double>(kMinRateSteps - 1, 2.0), .02);
  EXPECT_DOUBLE_EQ(run.mean, 2);
  EXPECT_FALSE(run.verdict_interval);
  EXPECT_FALSE(run.shown_interval);
}

TEST(WithinRun, CorrelatedStepsMakeLongerBlocks) {
  const WithinRun free = within_run_mean(steps(512, 0, 1), 0);
  const WithinRun bound = within_run_mean(steps(512, .9, 1), 0);
  EXPECT_LT(free.block_length, bound.block_length);
  EXPECT_LT(free.verdict_interval->hi - free.verdict_interval->lo,
            bound.verdict_interval->hi - bound.verdict_interval->lo);
}

TEST(WithinRun, DriftThatNoBlockRemovesInflates) {
  std::vector<double> ramp;
  for (int i = 0; i < 64; ++i) ramp.push_back(1 + .01 * i);
  const WithinRun run = within_run_mean(ramp, 0);
  EXPECT_EQ(run.blocks, 8);
  EXPECT_GT(run.inflation, 1.5);
}

// The 95 % interval without guard band holds the true mean in about 95 % of cases, also when
// neighbouring steps are correlated (where plain s / sqrt(n) covers about half of that).
TEST(WithinRun, CoverageOfCorrelatedSteps) {
  for (const double rho : {0.0, .8}) {
    int held = 0;
    const int experiments = 1000;
    for (int i = 0; i < experiments; ++i) {
      const WithinRun run = within_run_mean(steps(200, rho, 100 + static_cast<uint64_t>(i)), 0);
      if (run.shown_interval->lo <= 1 && run.shown_interval->hi >= 1) ++held;
    }
    RecordProperty("coverage", held);
    EXPECT_GE(held, experiments * 87 / 100) << rho;
    EXPECT_LE(held, experiments * 99 / 100) << rho;
  }
}

TEST(WithinRun, RejectsImpossibleTimes) {
  EXPECT_THROW(within_run_mean(std::vector<double>{1, 0}, .02), std::invalid_argument);
  EXPECT_THROW(within_run_mean(std::vector<double>{1, NAN}, .02), std::invalid_argument);
  EXPECT_THROW(within_run_mean({}, .02), std::invalid_argument);
}

}  // namespace
}  // namespace harness::stats
