#include "harness/stats/signed_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace harness::stats {
namespace {

// n = 3: the subset sums of {1, 2, 3} are 0 1 2 3 3 4 5 6, each with probability 1/8.
TEST(SignedRank, DistributionByHand) {
  EXPECT_EQ(signed_rank_pmf(3), (std::vector<double>{.125, .125, .125, .25, .125, .125, .125}));
  EXPECT_EQ(signed_rank_cdf(3, 2), .375);
  EXPECT_EQ(signed_rank_cdf(3, -1), 0);
  EXPECT_EQ(signed_rank_cdf(3, 99), 1);
}

TEST(SignedRank, DistributionSumsToOneAndIsSymmetric) {
  for (const int64_t n : {1, 2, 10, 37, 200}) {
    const auto p = signed_rank_pmf(n);
    EXPECT_NEAR(std::accumulate(p.begin(), p.end(), 0.0), 1, 1e-12) << n;
    for (size_t w = 0; w < p.size(); ++w)
      ASSERT_NEAR(p[w], p[p.size() - 1 - w], 1e-15) << n << " " << w;
  }
}

// Tables of the signed-rank test, two-sided 1 % and 5 %.
TEST(SignedRank, CriticalValues) {
  const std::vector<std::pair<int64_t, int64_t>> at99 = {{8, 0},  {9, 1},   {10, 3},  {11, 5},
                                                         {12, 7}, {16, 19}, {20, 37}, {25, 68}};
  for (const auto& [n, c] : at99) EXPECT_EQ(signed_rank_critical(n, .99), c) << n;
  const std::vector<std::pair<int64_t, int64_t>> at95 = {{6, 0}, {7, 2}, {8, 3}, {10, 8}, {20, 52}};
  for (const auto& [n, c] : at95) EXPECT_EQ(signed_rank_critical(n, .95), c) << n;
  for (int64_t n = 0; n < 8; ++n) EXPECT_EQ(signed_rank_critical(n, .99), std::nullopt) << n;
  for (int64_t n = 0; n < 6; ++n) EXPECT_EQ(signed_rank_critical(n, .95), std::nullopt) << n;
}

// Walsh averages of {1, 2, 4}: 1, 1.5, 2, 2.5, 3, 4 -> median 2.25.
TEST(HodgesLehmann, ByHand) {
  const std::vector<double> d = {4, 1, 2};
  EXPECT_EQ(walsh_averages(d), (std::vector<double>{1, 1.5, 2, 2.5, 3, 4}));
  EXPECT_EQ(hodges_lehmann(d), 2.25);
}

// Hollander & Wolfe, Nonparametric Statistical Methods, example 3.1: Hamilton depression scale
// factor IV of nine patients before and after a tranquiliser. The ranks of |d| with positive
// d (.147 and .080) are 3 and 2, so W = 5 and P(W <= 5) = 10/512 = .0195 (one-sided, as printed
// there). Their estimate is -.46 and their interval of 96.1 % is (-.786, -.010).
TEST(SignedRank, PublishedExample) {
  const std::vector<double> before = {1.83, .50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30};
  const std::vector<double> after = {.878, .647, .598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29};
  std::vector<double> d;
  for (size_t i = 0; i < before.size(); ++i) d.push_back(after[i] - before[i]);
  EXPECT_NEAR(signed_rank_cdf(9, 5), .01953125, 1e-15);
  EXPECT_NEAR(hodges_lehmann(d), -.46, 1e-12);
  const auto interval = signed_rank_interval(d, .95);
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->lo, -.786, 1e-12);
  EXPECT_NEAR(interval->hi, -.010, 1e-12);
  EXPECT_NEAR(interval->level, .9609375, 1e-12);
}

TEST(SignedRank, IntervalHoldsTheEstimateAndWidensWithLevel) {
  const std::vector<double> d = {.3, -.1, .25, .4, .05, .2, .15, .35, .1, .22};
  const auto shown = signed_rank_interval(d, .95), verdict = signed_rank_interval(d, .99);
  ASSERT_TRUE(shown && verdict);
  EXPECT_LE(verdict->lo, shown->lo);
  EXPECT_GE(verdict->hi, shown->hi);
  EXPECT_LE(shown->lo, hodges_lehmann(d));
  EXPECT_GE(shown->hi, hodges_lehmann(d));
  EXPECT_GE(verdict->level, .99);
}

TEST(SignedRank, RejectsWhatIsNotFinite) {
  EXPECT_THROW(signed_rank_interval(std::vector<double>{1, NAN}, .95), std::invalid_argument);
  EXPECT_THROW(hodges_lehmann(std::vector<double>{INFINITY}), std::invalid_argument);
  EXPECT_THROW(hodges_lehmann({}), std::invalid_argument);
}

}  // namespace
}  // namespace harness::stats
