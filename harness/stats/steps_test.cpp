#include "harness/stats/steps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/stats/random.h"

namespace harness::stats {
namespace {

std::vector<double> noisy(const std::vector<double>& levels, int each, double noise,
                          uint64_t seed) {
  Random random(seed);
  std::vector<double> series;
  for (const double level : levels)
    for (int i = 0; i < each; ++i)
      series.push_back(level * (1 + noise * (2 * random.uniform() - 1)));
  return series;
}

TEST(Steps, OneStepIsFoundWhereItIs) {
  const auto steps = find_steps(noisy({100, 110}, 10, 0.01, 1));
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].at, 10);
  EXPECT_NEAR(steps[0].before, 100, 1);
  EXPECT_NEAR(steps[0].after, 110, 1.1);
}

TEST(Steps, ThereAndBackAreTwo) {
  const auto steps = find_steps(noisy({100, 80, 100}, 8, 0.01, 2));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].at, 8);
  EXPECT_EQ(steps[1].at, 16);
}

TEST(Steps, NoiseAndOneOddRunAreNone) {
  int found = 0;
  for (uint64_t seed = 0; seed < 100; ++seed)
    found += !find_steps(noisy({100}, 20, 0.02, seed)).empty();
  EXPECT_LE(found, 2);
  auto series = noisy({100}, 20, 0.005, 3);
  series[9] = 200;
  EXPECT_TRUE(find_steps(series).empty());
}

TEST(Steps, ConstantAndShortSeriesHaveNone) {
  EXPECT_TRUE(find_steps(std::vector<double>(30, 5.0)).empty());
  EXPECT_TRUE(find_steps({}).empty());
  EXPECT_TRUE(find_steps(std::vector<double>{1, 2, 3}).empty());
  EXPECT_EQ(find_steps(std::vector<double>{1, 1, 1, 1, 2, 2, 2, 2}).size(), 1u);
}

TEST(Steps, ImpossibleFiguresAreRefused) {
  EXPECT_THROW(find_steps(std::vector<double>{1, 0, 1, 1}), std::invalid_argument);
  EXPECT_THROW(find_steps(std::vector<double>{1, NAN, 1, 1}), std::invalid_argument);
}

}  // namespace
}  // namespace harness::stats
