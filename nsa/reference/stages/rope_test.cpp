#include "nsa/reference/stages/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nsa/reference/passes/backward.h"
#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

TEST(Rope, HandComputed) {
  // dk = 4, base 100: frequencies 100^0 = 1 and 100^(-2/4) = 0.1; at position 2 the angles are 2
  // and 0.2. (1, 0) -> (cos 2, sin 2); (0, 1) -> (-sin 0.2, cos 0.2).
  const std::vector<double> frequency = rope_frequencies(4, 100);
  EXPECT_DOUBLE_EQ(frequency[0], 1.0);
  EXPECT_DOUBLE_EQ(frequency[1], 0.1);
  std::vector<double> x = {1, 0, 0, 1};
  rotate(x, 2, frequency, RopePairs::kInterleaved);
  EXPECT_NEAR(x[0], -0.4161468365471424, 1e-15);
  EXPECT_NEAR(x[1], 0.9092974268256817, 1e-15);
  EXPECT_NEAR(x[2], -0.19866933079506122, 1e-15);
  EXPECT_NEAR(x[3], 0.9800665778412416, 1e-15);
}

TEST(Rope, HalfSplitPairsByHand) {
  // The same angles 2 and 0.2, of the pairs (x0, x2) and (x1, x3): (1, 0) -> (cos 2, sin 2) in the
  // places 0 and 2, (0, 1) -> (-sin 0.2, cos 0.2) in 1 and 3.
  std::vector<double> x = {1, 0, 0, 1};
  rotate(x, 2, rope_frequencies(4, 100), RopePairs::kHalfSplit);
  EXPECT_NEAR(x[0], -0.4161468365471424, 1e-15);
  EXPECT_NEAR(x[2], 0.9092974268256817, 1e-15);
  EXPECT_NEAR(x[1], -0.19866933079506122, 1e-15);
  EXPECT_NEAR(x[3], 0.9800665778412416, 1e-15);
}

TEST(Rope, EveryHeadHasItsOwnFrequencies) {
  // Two equal heads of dk = 2 stay equal: both rotate by t. Were the heads one vector of 4, the
  // second pair would rotate by t / 100.
  const Tensor<double> y = rope(Tensor<double>({1, 3, 2, 2}, {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}),
                                1e4, RopePairs::kInterleaved);
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t h = 0; h < 2; ++h) {
      EXPECT_DOUBLE_EQ(y(0, t, h, 0), std::cos(static_cast<double>(t)));
      EXPECT_DOUBLE_EQ(y(0, t, h, 1), std::sin(static_cast<double>(t)));
    }
}

TEST(Rope, DotProductsDependOnDistanceOnly) {
  Random random(1);
  const Tensor<double> q = random.tensor({8}), k = random.tensor({8});
  const std::vector<double> frequency = rope_frequencies(8, 1e4);
  const auto dot_at = [&](int64_t tq, int64_t tk, RopePairs pairs) {
    std::vector<double> a = q.values(), b = k.values();
    rotate(a, tq, frequency, pairs);
    rotate(b, tk, frequency, pairs);
    double sum = 0;
    for (size_t e = 0; e < a.size(); ++e) sum += a[e] * b[e];
    return sum;
  };
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalfSplit}) {
    EXPECT_NEAR(dot_at(7, 3, pairs), dot_at(1004, 1000, pairs), 1e-12);
    EXPECT_GT(std::abs(dot_at(7, 3, pairs) - dot_at(7, 4, pairs)), 1e-3);
  }
}

TEST(Rope, BackwardIsRotationBack) {
  const Tensor<double> x = Random(2).tensor({2, 5, 3, 6});
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalfSplit}) {
    const Tensor<double> back = rope_backward(rope(x, 1e4, pairs), 1e4, pairs);
    for (size_t i = 0; i < x.values().size(); ++i)
      EXPECT_NEAR(back.values()[i], x.values()[i], 1e-15);
  }
}

TEST(Rope, Errors) {
  EXPECT_EQ(error_of([] { rope(Tensor<double>({1, 1, 1, 3}), 1e4, RopePairs::kHalfSplit); }),
            "nsa::reference::rope: qk_head_dim must be even, got 3");
  EXPECT_EQ(error_of([] { rope(Tensor<double>({1, 4}), 1e4, RopePairs::kInterleaved); }),
            "nsa::reference::rope: x must be [B,S,H,dk], got [1, 4]");
}

}  // namespace
}  // namespace nsa::reference
