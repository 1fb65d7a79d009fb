#include "harness/stats/distributions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace harness::stats {
namespace {

TEST(Normal, TabulatedQuantiles) {
  EXPECT_NEAR(normal_quantile(.5), 0, 1e-10);
  EXPECT_NEAR(normal_quantile(.975), 1.959963984540054, 1e-10);
  EXPECT_NEAR(normal_quantile(.995), 2.575829303548901, 1e-10);
  EXPECT_NEAR(normal_quantile(.001), -3.090232306167813, 1e-10);
  EXPECT_NEAR(normal_cdf(1), .841344746068543, 1e-14);
}

TEST(Student, TabulatedQuantiles) {
  struct Row {
    double p, degrees, t;
  };
  for (const Row& row :
       {Row{.975, 1, 12.706204736}, Row{.995, 1, 63.656741163}, Row{.975, 9, 2.262157163},
        Row{.995, 9, 3.249835542}, Row{.8, 9, .883403860}, Row{.975, 30, 2.042272456},
        Row{.995, 1000, 2.580754698}})
    EXPECT_NEAR(student_t_quantile(row.p, row.degrees), row.t, 1e-7 * row.t) << row.degrees;
  EXPECT_NEAR(student_t_quantile(.025, 9), -2.262157163, 1e-8);
}

TEST(Quantiles, RejectImpossibleProbabilities) {
  EXPECT_THROW(normal_quantile(0), std::invalid_argument);
  EXPECT_THROW(normal_quantile(NAN), std::invalid_argument);
  EXPECT_THROW(student_t_quantile(1, 3), std::invalid_argument);
  EXPECT_THROW(student_t_quantile(.5, 0), std::invalid_argument);
}

/// Exact where nothing or everything hit: 1 - (1 - confidence)^(1/trials). The others: tables of
/// Clopper and Pearson's intervals, one side of 95 % and 97.5 %.
TEST(Share, ClopperPearsonBounds) {
  EXPECT_NEAR(share_upper_bound(0, 200, .95), 1 - std::pow(.05, 1. / 200), 1e-12);
  EXPECT_NEAR(share_upper_bound(0, 200, .95), .014867, 1e-6);
  EXPECT_NEAR(share_lower_bound(60, 60, .95), std::pow(.05, 1. / 60), 1e-12);
  EXPECT_NEAR(share_upper_bound(1, 20, .95), .216107, 1e-6);
  EXPECT_NEAR(share_upper_bound(5, 10, .975), .812914, 1e-6);
  EXPECT_NEAR(share_lower_bound(5, 10, .975), .187086, 1e-6);
  EXPECT_EQ(share_upper_bound(3, 3, .95), 1);
  EXPECT_EQ(share_lower_bound(0, 3, .95), 0);
  EXPECT_THROW(share_upper_bound(4, 3, .95), std::invalid_argument);
  EXPECT_THROW(share_lower_bound(0, 0, .95), std::invalid_argument);
  EXPECT_THROW(share_upper_bound(1, 3, 1), std::invalid_argument);
}

}  // namespace
}  // namespace harness::stats
