#include "nsa/reference/stages/scores.h"

#include <gtest/gtest.h>

#include "nsa/reference/stages/compress.h"
#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

Config blocks(int64_t l, int64_t d, int64_t l_sel) {
  Config c;
  c.num_heads = 2, c.num_kv_heads = 1;
  c.block_size = l, c.block_stride = d, c.sel_block_size = l_sel;
  return c;
}

/// The non-zero weights of selection block j, by i.
std::vector<int64_t> weights(const Config& c, int64_t j, int64_t* first = nullptr) {
  std::vector<int64_t> w;
  for (int64_t i = 0; i < 100; ++i)
    if (const int64_t weight = overlap_weight(c, i, j); weight > 0) {
      if (w.empty() && first) *first = i;
      w.push_back(weight);
    }
  return w;
}

using Weights = std::vector<int64_t>;

TEST(Scores, PaperWeights) {
  // 32/16/64: block i covers the strides i, i+1; selection block j the strides 4j .. 4j+3.
  int64_t first = 0;
  EXPECT_EQ(weights(blocks(32, 16, 64), 3, &first), (Weights{1, 2, 2, 2, 1}));
  EXPECT_EQ(first, 4 * 3 - 1);
  EXPECT_EQ(weights(blocks(32, 16, 64), 0, &first), (Weights{2, 2, 2, 1}));
  EXPECT_EQ(first, 0);
}

TEST(Scores, OtherWeights) {
  // 12/4/20: i covers 3 strides, j the strides 5j .. 5j+4: i = 5j-2 shares one, 5j-1 two, ...
  int64_t first = 0;
  EXPECT_EQ(weights(blocks(12, 4, 20), 2, &first), (Weights{1, 2, 3, 3, 3, 2, 1}));
  EXPECT_EQ(first, 8);
  EXPECT_EQ(weights(blocks(12, 4, 20), 0), (Weights{3, 3, 3, 2, 1}));
  EXPECT_EQ(weights(blocks(8, 8, 8), 5, &first), (Weights{1}));
  EXPECT_EQ(first, 5);
  EXPECT_EQ(weights(blocks(8, 4, 8), 1), (Weights{1, 2, 1}));
  EXPECT_EQ(weights(blocks(16, 16, 64), 1), (Weights{1, 1, 1, 1}));
  EXPECT_EQ(weights(blocks(12, 4, 12), 1), (Weights{1, 2, 3, 2, 1}));
}

TEST(Scores, EveryBlockGivesAwayAllItsStrides) {
  for (const auto& [l, d, l_sel] : {std::tuple{32, 16, 64}, {12, 4, 20}, {6, 1, 7}, {5, 5, 25}})
    for (int64_t i = 0; i < 30; ++i) {
      int64_t sum = 0;
      for (int64_t j = 0; j < 60; ++j) sum += overlap_weight(blocks(l, d, l_sel), i, j);
      EXPECT_EQ(sum, l / d);
    }
}

TEST(Scores, ByHand) {
  // l = 2, d = 1, l' = 2: weight 2 on i = 2j, 1 on i = 2j-1 and 2j+1. Two heads, 3 visible blocks:
  // P = (0.5, 0.25+0.5, 0.25+0.5) = (0.5, 0.75, 0.75).
  // score[0] = 2*0.5 + 1*0.75 = 1.75; score[1] = 1*0.75 + 2*0.75 = 2.25; score[2] = 0: i = 3 would
  // count, but is not visible, and nothing is renormalised.
  const Tensor<double> p({2, 3}, {0.5, 0.25, 0.25, 0, 0.5, 0.5});
  EXPECT_EQ(row_scores(blocks(2, 1, 2), p, 3), (std::vector<double>{1.75, 2.25, 0}));
  EXPECT_EQ(row_scores(blocks(2, 1, 2), Tensor<double>({2, 0}), 2), (std::vector<double>{0, 0}));
}

TEST(Scores, WholeTensorIgnoresBlocksThatAreNotVisible) {
  // S = 3: N_c = 2. At t = 1 only block 0 is visible, whatever p holds for block 1.
  const Config c = blocks(2, 1, 2);
  Tensor<double> p({1, 3, 2, 2}, 1.0);
  const Tensor<double> scores = group_scores(c, p);
  EXPECT_EQ(scores.shape(), (Shape{1, 3, 1, 2}));
  // t = 0: nothing. t = 1: P = (2): 2*2 = 4, 0. t = 2: P = (2, 2): 2*2 + 2 = 6, 1*2 = 2.
  EXPECT_EQ(scores.values(), (std::vector<double>{0, 0, 4, 0, 6, 2}));
}

TEST(Scores, SumsGoUpInHeadAndBlock) {
  // (1 + 2^-53) + 2^-53 = 1, but 1 + (2^-53 + 2^-53) > 1: the order of the heads shows.
  const double half_ulp = 0x1p-53;
  Config c = blocks(2, 2, 2);
  c.num_heads = 3;
  EXPECT_EQ(row_scores(c, Tensor<double>({3, 1}, {1, half_ulp, half_ulp}), 1)[0], 1.0);
  EXPECT_GT(row_scores(c, Tensor<double>({3, 1}, {half_ulp, half_ulp, 1}), 1)[0], 1.0);
  c.num_heads = 1, c.sel_block_size = 6;
  EXPECT_EQ(row_scores(c, Tensor<double>({1, 3}, {1, half_ulp, half_ulp}), 1)[0], 1.0);
  EXPECT_GT(row_scores(c, Tensor<double>({1, 3}, {half_ulp, half_ulp, 1}), 1)[0], 1.0);
}

TEST(Scores, Errors) {
  EXPECT_EQ(error_of([] { group_scores(blocks(2, 1, 2), Tensor<double>({1, 3, 2, 3})); }),
            "nsa::reference::group_scores: p_cmp must be [1, 3, 2, 2], got [1, 3, 2, 3]");
}

}  // namespace
}  // namespace nsa::reference
