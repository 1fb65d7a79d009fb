#include "harness/training_comparison/scaling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/schema/error.h"

namespace harness {
namespace {

Metric rate(double value, double lo, double hi) {
  Metric metric;
  metric.unit = "tok_s";
  metric.value = value;
  metric.lo = lo;
  metric.hi = hi;
  return metric;
}

TEST(ScalingEfficiency, ByHand) {
  const ScalingEfficiency two = scaling_efficiency(rate(100, 98, 104), rate(190, 180, 196), 2);
  EXPECT_DOUBLE_EQ(two.pct, 95);
  EXPECT_DOUBLE_EQ(*two.lo_pct, 100 * 180.0 / 208);
  EXPECT_DOUBLE_EQ(*two.hi_pct, 100 * 196.0 / 196);
}

TEST(ScalingEfficiency, HasNoBoundsWithoutThoseOfBothRates) {
  Metric bare = rate(190, 0, 0);
  bare.lo = bare.hi = std::nullopt;
  EXPECT_FALSE(scaling_efficiency(rate(100, 98, 104), bare, 2).lo_pct);
  EXPECT_FALSE(scaling_efficiency(bare, rate(100, 98, 104), 2).lo_pct);
}

TEST(ScalingEfficiency, ARateThatIsNoNumberAboveZeroIsRefused) {
  const Metric good = rate(100, 98, 104);
  EXPECT_THROW(scaling_efficiency(rate(0, 0, 0), good, 2), Error);
  EXPECT_THROW(scaling_efficiency(good, rate(std::nan(""), 1, 2), 2), Error);
  EXPECT_THROW(scaling_efficiency(good, Metric{}, 2), Error);
  EXPECT_THROW(scaling_efficiency(good, good, 0), Error);
}

}  // namespace
}  // namespace harness
