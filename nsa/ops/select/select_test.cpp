#include <limits>

#include "nsa/ops/common/test_util.h"
#include "nsa/ops/select/scores.h"
#include "nsa/ops/select/top_n.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

NsaConfig config(int64_t l, int64_t d, int64_t sel, int64_t n, int64_t initial, int64_t local) {
  NsaConfig c;
  c.block_size = l, c.block_stride = d, c.sel_block_size = sel;
  c.top_n = n, c.num_initial = initial, c.num_local = local;
  return c;
}

TEST(GroupSum, AddsTheHeadsOfAGroup) {
  const at::Tensor probs = doubles({1, 2, 3, 4, 10, 20, 30, 40}, {1, 4, 2});
  expect_near(group_sum(probs, 2), doubles({4, 6, 40, 60}, {1, 2, 2}));
  EXPECT_THAT(error_of([&] { group_sum(probs, 3); }),
              HasSubstr("nsa::group_sum: Hq must be a multiple of num_kv_heads = 3, got 4"));
}

TEST(BlockScores, WeightsOf32_16_64Are12221) {
  // l/d = 2, l'/d = 4. Block j sees compressed blocks 4j-1 .. 4j+3 with weights 1 2 2 2 1. With
  // P[i] = 10^i: score 0 = 2*1 + 2*10 + 2*100 + 1000, score 1 = 1000 + 2*(10^4 + 10^5 + 10^6) +
  // 10^7.
  const at::Tensor probs = at::pow(10.0, at::arange(8, at::kDouble)).reshape({1, 8});
  expect_near(block_scores(probs, 2, config(32, 16, 64, 3, 1, 2)),
              doubles({1222, 1000 + 2 * 1.11e6 + 1e7}, {1, 2}));
}

TEST(BlockScores, WeightsOf12_4_20) {
  // l/d = 3, l'/d = 5: compressed block i covers strides i..i+2; block 0 covers strides 0..4.
  // Overlaps with block 0: i = 0,1,2 -> 3, i = 3 -> 2, i = 4 -> 1.
  const at::Tensor score = block_scores(at::eye(5, at::kDouble), 1, config(12, 4, 20, 3, 1, 2));
  expect_near(score, doubles({3, 3, 3, 2, 1}, {5, 1}));
}

TEST(BlockScores, MissingBlocksCountZeroAndNoBlocksGiveZeros) {
  const NsaConfig c = config(32, 16, 64, 3, 1, 2);
  expect_near(block_scores(at::ones({1, 1}, at::kDouble), 2, c), doubles({2, 0}, {1, 2}));
  expect_near(block_scores(at::ones({1, 0}, at::kDouble), 1, c), doubles({0}, {1, 1}));
  EXPECT_EQ(block_scores(at::ones({3, 0}), 0, c).sizes(), at::IntArrayRef({3, 0}));
}

TEST(BlockScores, EqualPatternsGiveEqualBits) {
  at::manual_seed(1);
  const NsaConfig c = config(12, 4, 20, 3, 1, 2);
  const at::Tensor pattern = at::rand({7, 5});
  // A pattern repeated along i is the same for every inner block, wherever it falls in a vector.
  const at::Tensor scores = block_scores(pattern.repeat({1, 41}), 41, c).narrow(1, 1, 39);
  EXPECT_TRUE(at::equal(scores, scores.narrow(1, 0, 1).expand({7, 39}).contiguous()));
}

at::Tensor select_row(const std::vector<double>& scores, int64_t t, const NsaConfig& c,
                      at::ScalarType dtype) {
  const at::Tensor x = doubles(scores, {1, 1, static_cast<int64_t>(scores.size())}).to(dtype);
  return select_blocks(x, at::full({1}, t, at::kLong), c);
}

void expect_ids(const std::vector<double>& scores, int64_t t, const NsaConfig& c,
                const std::vector<int32_t>& want) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor ids = select_row(scores, t, c, dtype);
    EXPECT_TRUE(at::equal(ids, ints(want, {1, 1, static_cast<int64_t>(want.size())})))
        << ids << " for t = " << t;
  }
}

TEST(SelectBlocks, ForcedThenByScoreThenByIndex) {
  const NsaConfig c = config(4, 4, 4, 4, 1, 2);               // one free place
  expect_ids({0, 5, 7, 7, 6, 0, 0, 9}, 27, c, {0, 2, 5, 6});  // 7 beats 5 and 6; lower of the two
  expect_ids({0, 0, 0, 0, 0, 0, 0, 0}, 27, c, {0, 1, 5, 6});  // zeros fill places
  expect_ids({9, 9, 9, 9, 9, 9, 9, 9}, 3, c, {0, -1, -1, -1});
  expect_ids({9, 9, 9, 9, 9, 9, 9, 9}, 4, c, {0, 1, -1, -1});
  expect_ids({9, 9, 9, 9, 9, 9, 9, 9}, 15, c, {0, 1, 2, 3});
}

TEST(SelectBlocks, NanIsBelowEveryNumber) {
  const NsaConfig c = config(4, 4, 4, 5, 0, 1);  // four free places of seven
  expect_ids({kNan, -kInf, kNan, 1, kInf, -0.0, 0.0, 2}, 31, c, {3, 4, 5, 6, 7});
  expect_ids({kNan, kNan, -kInf, kNan, kNan, kNan, -1, 2}, 31, c, {0, 1, 2, 6, 7});
}

TEST(SelectBlocks, ZeroesOfBothSignsAreOneNumber) {
  const NsaConfig c = config(4, 4, 4, 2, 0, 1);
  expect_ids({-0.0, 0.0, 0.0, 7}, 15, c, {0, 3});
}

TEST(SelectBlocks, MoreForcedThanBlocksAndMorePlacesThanBlocks) {
  expect_ids({1, 2, 3, 4, 5, 6}, 23, config(4, 4, 4, 5, 3, 2), {0, 1, 2, 4, 5});
  expect_ids({1, 2, 3}, 9, config(4, 4, 4, 6, 4, 2), {0, 1, 2, -1, -1, -1});
  expect_ids({1, 2, 3}, 7, config(4, 4, 4, 6, 1, 2), {0, 1, -1, -1, -1, -1});
}

TEST(SelectBlocks, EveryRowHasTheRightNumberOfIds) {
  at::manual_seed(2);
  const NsaConfig c = config(4, 4, 8, 5, 1, 2);
  const at::Tensor ids = select_blocks(at::rand({2, 100, 3, 13}), at::arange(100), c);
  const at::Tensor count = ids.ge(0).sum(-1);
  const at::Tensor want = at::arange(100).div(8, "floor").add(1).clamp_max(5).reshape({1, 100, 1});
  EXPECT_TRUE(at::equal(count, want.expand({2, 100, 3}).contiguous()));
}

TEST(SelectBlocks, BadArgumentsAreNamed) {
  const NsaConfig c = config(4, 4, 4, 4, 1, 2);
  const at::Tensor scores = at::rand({2, 8, 1, 2});
  EXPECT_THAT(error_of([&] { select_blocks(scores.to(at::kHalf), at::arange(8), c); }),
              HasSubstr("nsa::select_blocks: scores must be Double, got Half"));
  EXPECT_THAT(error_of([&] { select_blocks(scores, at::arange(7), c); }),
              HasSubstr("t must be broadcastable to [2, 8]"));
  EXPECT_THAT(error_of([&] { select_blocks(scores, at::arange(8) + 4, c); }),
              HasSubstr("N must be at least 3, got 2"));
  EXPECT_THAT(error_of([&] { select_blocks(scores, at::arange(8) - 1, c); }),
              HasSubstr("t must be at least 0, got -1"));
}

}  // namespace
}  // namespace nsa
