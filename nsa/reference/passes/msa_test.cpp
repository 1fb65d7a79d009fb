// MSA of hand-computed numbers.
#include "nsa/reference/passes/msa.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nsa::reference {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kNone = -std::numeric_limits<double>::infinity();

/// One sequence of 6 tokens in blocks of 2, one KV head, an index of one dimension.
const MsaSizes kSizes{.block_size = 2, .top_n = 2};

Tensor<double> of(Shape shape, std::vector<double> values) {
  return Tensor<double>(std::move(shape), std::move(values));
}

TEST(Msa, ScoreOfABlockIsItsLargestProductUpToTheQuery) {
  const auto q = of({1, 6, 1, 1}, {1, 1, 1, 1, 1, -1});
  const auto k = of({1, 6, 1}, {3, 1, -2, 5, 4, 0});
  const Tensor<double> s = msa_scores(kSizes, q, k);
  ASSERT_EQ(s.shape(), (Shape{1, 6, 1, 3}));
  EXPECT_EQ(s(0, 0, 0, 0), 3);
  EXPECT_EQ(s(0, 2, 0, 1), -2) << "token 3 lies behind the query";
  EXPECT_EQ(s(0, 3, 0, 1), 5);
  EXPECT_EQ(s(0, 3, 0, 2), kNone);
  EXPECT_EQ(s(0, 5, 0, 0), -1);
  EXPECT_EQ(s(0, 5, 0, 1), 2);
}

TEST(Msa, ProductsAreDividedByTheRootOfTheWidth) {
  const auto s = msa_scores({.block_size = 1, .top_n = 1}, of({1, 1, 1, 4}, {1, 2, 3, 4}),
                            of({1, 1, 4}, {1, 1, 1, 1}));
  EXPECT_EQ(s(0, 0, 0, 0), 5);
}

TEST(Msa, TheCurrentBlockIsAlwaysChosen) {
  const auto ids = msa_select(kSizes, of({1, 6, 1, 3}, {3, kNone, kNone, 3, kNone, kNone,  //
                                                        3, -2, kNone, 3, 5, kNone,         //
                                                        3, 5, 4, 9, 9, -100}));
  const auto row = [&](int64_t t) {
    const auto r = ids.row(0, t, 0);
    return std::vector<int32_t>(r.begin(), r.end());
  };
  EXPECT_EQ(row(0), (std::vector<int32_t>{0, -1}));
  EXPECT_EQ(row(2), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(row(4), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(row(5), (std::vector<int32_t>{0, 2})) << "equal scores to the lower index";
}

TEST(Msa, ANaNOfAnIndexMakesItsBlockTheLast) {
  const auto k = of({1, 6, 1}, {kNaN, 1, -2, -5, 4, 0});
  const auto s = msa_scores(kSizes, of({1, 6, 1, 1}, {1, 1, 1, 1, 1, 1}), k);
  EXPECT_TRUE(std::isnan(s(0, 5, 0, 0)));
  const auto ids = msa_select(kSizes, s);
  EXPECT_EQ(ids(0, 5, 0, 0), 1);
  EXPECT_EQ(ids(0, 5, 0, 1), 2);
}

/// Query 4 attends tokens 2, 3 and 4: equal logits make the mean of their values.
TEST(Msa, AttentionIsExactOverTheChosenBlocks) {
  const auto zero = of({1, 6, 1, 1}, {0, 0, 0, 0, 0, 0});
  const auto v = of({1, 6, 1, 1}, {1, 10, 100, 200, 600, 7000});
  const auto ids = msa_select(kSizes, msa_scores(kSizes, of({1, 6, 1, 1}, {1, 1, 1, 1, 1, 1}),
                                                 of({1, 6, 1}, {3, 1, -2, 5, 4, 0})));
  const Attention out = msa_attention(kSizes, zero, zero, v, ids);
  EXPECT_DOUBLE_EQ(out.o(0, 4, 0, 0), 300);
  EXPECT_DOUBLE_EQ(out.lse(0, 4, 0), std::log(3.0));
  const auto d =
      msa_attention_backward(kSizes, zero, zero, v, ids, of({1, 6, 1, 1}, {0, 0, 0, 0, 3, 0}));
  EXPECT_DOUBLE_EQ(d.v(0, 2, 0, 0), 1);
  EXPECT_DOUBLE_EQ(d.v(0, 1, 0, 0), 0) << "its block was not chosen";
  EXPECT_DOUBLE_EQ(d.v(0, 5, 0, 0), 0);
}

TEST(Msa, ErrorsNameArgumentAndValue) {
  EXPECT_THROW(msa_scores({.block_size = 0}, of({1, 1, 1, 1}, {1}), of({1, 1, 1}, {1})),
               std::invalid_argument);
  EXPECT_THROW(msa_scores(kSizes, of({1, 1, 1, 1}, {1}), of({1, 1, 2}, {1, 1})),
               std::invalid_argument);
}

}  // namespace
}  // namespace nsa::reference
