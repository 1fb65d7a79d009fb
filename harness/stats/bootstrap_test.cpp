#include "harness/stats/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "harness/stats/random.h"
#include "harness/stats/signed_rank.h"

namespace harness::stats {
namespace {

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// The first output of mt19937_64 with its default seed 5489 is fixed by the C++ standard's authors
// (14514284786278117030), so uniform() must start with that over 2^64, cut to 53 bits.
TEST(Random, MappingIsFixed) {
  Random random(5489);
  EXPECT_EQ(random.uniform(), static_cast<double>(14514284786278117030ull >> 11) * 0x1p-53);
}

TEST(Random, BelowStaysBelowAndReachesAll) {
  Random random(1);
  std::vector<int> seen(7);
  for (int i = 0; i < 7000; ++i) ++seen.at(random.below(7));
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

// Normal samples: the BCa interval of the mean is close to mean -+ z * s / sqrt(n).
TEST(Bca, CloseToNormalTheoryOfTheMean) {
  Random random(7);
  std::vector<double> samples;
  for (int i = 0; i < 200; ++i) samples.push_back(5 + random.normal());
  const Interval interval = bca_interval(samples, mean, .95, 11, 4000);
  const double centre = mean(samples);
  EXPECT_NEAR(interval.lo, centre - 1.96 / std::sqrt(200.0), .03);
  EXPECT_NEAR(interval.hi, centre + 1.96 / std::sqrt(200.0), .03);
}

TEST(Bca, SeedDecidesAndEqualSamplesArePoint) {
  const std::vector<double> samples = {1, 2, 4, 8, 16, 3, 5, 9};
  const Interval a = bca_interval(samples, hodges_lehmann, .95, 3);
  const Interval b = bca_interval(samples, hodges_lehmann, .95, 3);
  EXPECT_EQ(a.lo, b.lo);
  EXPECT_EQ(a.hi, b.hi);
  const Interval point = bca_interval(std::vector<double>{2, 2, 2}, mean, .95, 3);
  EXPECT_EQ(point.lo, 2);
  EXPECT_EQ(point.hi, 2);
}

TEST(Bca, RejectsBadInput) {
  EXPECT_THROW(bca_interval(std::vector<double>{1}, mean, .95, 1), std::invalid_argument);
  EXPECT_THROW(bca_interval(std::vector<double>{1, NAN}, mean, .95, 1), std::invalid_argument);
}

}  // namespace
}  // namespace harness::stats
