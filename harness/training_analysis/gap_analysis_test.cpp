#include "harness/training_analysis/gap_analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Metric rate(double value, double lo, double hi) {
  Metric metric;
  metric.unit = "tok_s";
  metric.value = value;
  metric.lo = lo;
  metric.hi = hi;
  return metric;
}

TEST(RateGap, FactorAndBoundsByHand) {
  const RateGap slow = rate_gap({"expected", 785, 785, ""}, rate(27, 25, 31.4));
  EXPECT_NEAR(slow.ratio, 785.0 / 27, 1e-12);
  EXPECT_DOUBLE_EQ(slow.lo, 25);
  EXPECT_DOUBLE_EQ(slow.hi, 31.4);
  EXPECT_EQ(slow.reading, RateGap::Reading::kSlower);
  EXPECT_EQ(rate_gap({"h", 9000, 9400, ""}, rate(100, 95, 105)).lo, 9000.0 / 105);
  EXPECT_EQ(rate_gap({"h", 90, 110, ""}, rate(100, 95, 105)).reading, RateGap::Reading::kWithin);
  EXPECT_EQ(rate_gap({"h", 50, 60, ""}, rate(100, 95, 105)).reading, RateGap::Reading::kFaster);
}

TEST(RateGap, WithoutAnIntervalNothingIsSlowerOrFaster) {
  Metric bare = rate(1, 0, 0);
  bare.lo = bare.hi = std::nullopt;
  const RateGap gap = rate_gap({"expected", 785, 785, ""}, bare);
  EXPECT_EQ(gap.reading, RateGap::Reading::kWithin);
  EXPECT_TRUE(std::isinf(gap.hi));
}

TEST(RateReferences, AreRefusedByName) {
  const json good = {{"name", "a"}, {"lo", 1}, {"hi", 2}, {"source", "s"}};
  EXPECT_EQ(read_references(json::array({good})).front().hi, 2);
  const auto error_of = [](const json& list) -> std::string {
    try {
      read_references(list);
    } catch (const Error& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_THAT(error_of(json::array()), HasSubstr("must not be empty"));
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{
           {"lo", 0}, {"hi", 0.5}, {"name", 7}, {"more", 1}, {"lo", "1"}}) {
    json bad = good;
    bad[key] = value;
    EXPECT_THAT(error_of(json::array({bad})), HasSubstr("0 < lo <= hi, got {")) << bad;
  }
  EXPECT_THAT(error_of(json::array({1})), HasSubstr("got 1"));
}

}  // namespace
}  // namespace harness
