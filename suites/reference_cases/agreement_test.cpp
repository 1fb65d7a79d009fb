#include "suites/reference_cases/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace suites {
namespace {

using nsa::reference::Tensor;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

std::string differ(double actual, double expected) {
  return first_difference(Tensor<double>({1}, {actual}), Tensor<double>({1}, {expected}));
}

TEST(Agreement, EqualNonFiniteValuesAgreeAndOthersDoNot) {
  EXPECT_EQ(differ(1, 1), "");
  EXPECT_EQ(differ(kInf, kInf), "");
  EXPECT_EQ(differ(kNan, kNan), "");
  for (const auto& [a, b] : {std::pair{kInf, -kInf},
                             {kInf, 1.0},
                             {1.0, kInf},
                             {kNan, 1.0},
                             {1.0, kNan},
                             {kNan, kInf},
                             {0.0, 1e-300}})
    EXPECT_NE(differ(a, b), "") << a << " " << b;
}

TEST(Agreement, ToleranceIsRelativeToTheRow) {
  // Rows (1000, 1) and (1, 1): an error of 5e-10 is within 1e-12 of the first row's scale only.
  const Tensor<double> expected({2, 2}, {1000, 1, 1, 1});
  EXPECT_EQ(first_difference(Tensor<double>({2, 2}, {1000, 1 + 5e-10, 1, 1}), expected), "");
  EXPECT_THAT(first_difference(Tensor<double>({2, 2}, {1000, 1, 1, 1 + 5e-10}), expected),
              HasSubstr("at [1, 1], expected 1; 1 of 4 differ"));
}

TEST(Agreement, ScaleFloors) {
  const Tensor<double> expected({2, 1}, {1000, 0});
  const Tensor<double> actual({2, 1}, {1000, 5e-13});
  EXPECT_NE(first_difference(actual, expected), "");
  EXPECT_EQ(first_difference(actual, expected, {.scale_floor = 1}), "");
  EXPECT_EQ(first_difference(actual, expected, {.scale_of_tensor = 1e-3}), "");
}

TEST(Agreement, ShapesAndIndices) {
  EXPECT_EQ(first_difference(Tensor<double>({1, 2}), Tensor<double>({2, 1})),
            "shape [1, 2], expected [2, 1]");
  EXPECT_EQ(first_difference(Tensor<double>(), Tensor<double>({0})), "shape [], expected [0]");
  EXPECT_EQ(first_difference(Tensor<int32_t>({2}, {1, 2}), Tensor<int32_t>({2}, {1, 2})), "");
  EXPECT_THAT(first_difference(Tensor<int32_t>({2}, {1, 3}), Tensor<int32_t>({2}, {1, 2})),
              HasSubstr("3 at [1], expected 2"));
  EXPECT_NE(first_difference(Tensor<int64_t>({1}, {1}), Tensor<int64_t>({1}, {2})), "");
}

}  // namespace
}  // namespace suites
