#include "suites/bench/sampled_time.h"

#include <gtest/gtest.h>

#include <c10/util/Exception.h>

#include <cmath>
#include <stdexcept>

#include "suites/instrument/event_timer.h"

namespace suites {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> all;
  for (int i = n; i >= 1; --i) all.push_back(i);
  return all;
}

TEST(SampledTime, IntervalOfTheMedianByTheBinomialTable) {
  // Ranks of the 99 % interval of a median: n = 8: 1 and 8; n = 20: 4 and 17; below 8 none.
  const nlohmann::json eight = time_json(one_to(8)), twenty = time_json(one_to(20));
  EXPECT_EQ(eight["median_ms"], 4.5);
  EXPECT_EQ(eight["lo_ms"], 1.0);
  EXPECT_EQ(eight["hi_ms"], 8.0);
  EXPECT_EQ(twenty["lo_ms"], 4.0);
  EXPECT_EQ(twenty["hi_ms"], 17.0);
  EXPECT_TRUE(time_json(one_to(7))["lo_ms"].is_null());
}

TEST(SampledTime, SamplesHaveTheDigitsOfAFloat) {
  EXPECT_EQ(time_json({1.0 / 3, 5.5683198})["samples_ms"], nlohmann::json({0.3333333, 5.56832}));
}

TEST(SampledTime, SamplesOnlyRequestedSeries) {
  int calls = 0;
  const auto work = [&] { ++calls; };
  const SampledTime hot = sample_time(at::kCPU, work, 0, {});
  EXPECT_GE(hot.hot.size(), 20U);
  EXPECT_TRUE(hot.alone.empty());
  EXPECT_TRUE(hot.cold.empty());
  EXPECT_FALSE(hot.sm_mhz.has_value());
  const int without = calls;
  calls = 0;
  const SampledTime both = sample_time(at::kCPU, work, 0, {.alone = true, .cold = true});
  EXPECT_EQ(both.alone.size(), 20U);
  EXPECT_TRUE(both.cold.empty()) << "a CPU has no cold calls";
  EXPECT_EQ(calls, without + 20);
}

TEST(SampledTime, ARowHasACallBeforeItThatIsNotTimed) {
  int calls = 0;
  EXPECT_EQ(time_row_ms(at::kCPU, [&] { ++calls; }, 7).size(), 7U);
  EXPECT_EQ(calls, 8);
  EXPECT_THROW(time_row_ms(at::kCPU, [] {}, 0), c10::Error);
}

TEST(SampledTime, RefusesImpossibleTimes) {
  EXPECT_THROW(time_json({}), std::invalid_argument);
  EXPECT_THROW(time_json({1, 0}), std::invalid_argument);
  EXPECT_THROW(time_json({1, std::nan("")}), std::invalid_argument);
}

}  // namespace
}  // namespace suites
