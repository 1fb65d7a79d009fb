#include "harness/stats/order_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <vector>

namespace harness::stats {
namespace {

std::vector<double> one_to(int n) {
  std::vector<double> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  return values;
}

TEST(Median, OddEvenAndUnsorted) {
  EXPECT_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median(std::vector<double>{7}), 7);
}

// n = 6: 2 P(Bin < 1) = 2/64 = 3.1 %, so [min, max] attains 96.9 %.
// n = 8: 2/256 = 0.8 %: [min, max] attains 99.2 %.
// n = 10: P(Bin < 2) = 11/1024, twice that is 2.1 %: k = 2 for 95 %, k = 1 for 99 %.
// n = 25: the tables' 95 % interval is [x_(8), x_(18)], attained 95.7 %.
TEST(MedianInterval, TabulatedOrderStatistics) {
  struct Row {
    int n;
    double level;
    double lo, hi, attained;
  };
  for (const Row& row :
       {Row{6, .95, 1, 6, .96875}, Row{8, .99, 1, 8, .9921875}, Row{10, .95, 2, 9, .978515625},
        Row{10, .99, 1, 10, .998046875}, Row{25, .95, 8, 18, .956714}}) {
    const auto interval = median_interval(one_to(row.n), row.level);
    ASSERT_TRUE(interval) << row.n;
    EXPECT_EQ(interval->lo, row.lo) << row.n;
    EXPECT_EQ(interval->hi, row.hi) << row.n;
    EXPECT_NEAR(interval->level, row.attained, 1e-6) << row.n;
  }
}

TEST(MedianInterval, NoneWhereTheLevelCannotBeAttained) {
  for (int n = 1; n <= 7; ++n) EXPECT_FALSE(median_interval(one_to(n), .99)) << n;
  for (int n = 1; n <= 5; ++n) EXPECT_FALSE(median_interval(one_to(n), .95)) << n;
}

TEST(MedianInterval, LargeSampleDoesNotUnderflow) {
  const auto interval = median_interval(one_to(10000), .99);
  ASSERT_TRUE(interval);
  // Normal approximation: 5000 -+ 2.576 * 50
  EXPECT_NEAR(interval->lo, 5000 - 128.8, 2);
  EXPECT_NEAR(interval->hi, 5001 + 128.8, 2);
}

TEST(RequirePositive, NamesWhatAndWhich) {
  const auto message = [](std::vector<double> samples) -> std::string {
    try {
      require_positive(samples, "arm 'v2'");
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_THAT(message({1, std::numeric_limits<double>::quiet_NaN()}),
              testing::HasSubstr("arm 'v2': sample 2 is nan; samples must be positive and finite"));
  EXPECT_THAT(message({inf}), testing::HasSubstr("sample 1 is inf"));
  EXPECT_THAT(message({1, 2, 0}), testing::HasSubstr("sample 3 is 0"));
  EXPECT_THAT(message({-1}), testing::HasSubstr("sample 1 is -1"));
  EXPECT_EQ(message({}), "arm 'v2': no samples");
  EXPECT_EQ(message({1, 2}), "");
}

TEST(Median, RejectsWhatIsNotFinite) {
  EXPECT_THROW(median(std::vector<double>{1, NAN}), std::invalid_argument);
  EXPECT_THROW(median({}), std::invalid_argument);
  EXPECT_THROW(median_interval(std::vector<double>{INFINITY}, .95), std::invalid_argument);
}

}  // namespace
}  // namespace harness::stats
