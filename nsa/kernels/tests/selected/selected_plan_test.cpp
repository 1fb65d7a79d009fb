#include "nsa/kernels/selected/selected_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nsa::kernels {
namespace {

constexpr SelectedSizes kPaper64k{1, 65536, 65536, 4, 16, 192, 128, 16};
constexpr SelectedSizes kSizes[] = {
    kPaper64k,
    {1, 8192, 8192, 4, 16, 192, 128, 16},
    {8, 2048, 2048, 2, 6, 64, 64, 16},
    {1, 32768, 32768, 64, 1, 128, 128, 16},
    {1, 1, 1, 1, 1, 64, 64, 1},
    {2, 171, 302, 3, 7, 128, 128, 5},
    {1, 1 << 20, 1 << 20, 2, 16, 192, 128, 16},
};

SelectedSizes forward(SelectedSizes s) {
  s.pass = SelectedPass::kForward;
  return s;
}

size_t tensor_bytes(const SelectedSizes& s) {
  const size_t heads = size_t(s.batch) * s.num_kv_heads;
  return (heads * s.num_queries * s.group_size + heads * s.num_keys) *
         (s.qk_head_dim + s.v_head_dim) * 2;
}

TEST(SelectedPlan, SetsCoverAllHeadsAndTokensOnce) {
  for (const SelectedSizes& s : kSizes) {
    const SelectedPlan p = plan_selected(s);
    EXPECT_GE(p.chunks * p.chunk_tokens, s.num_queries);
    EXPECT_LT((p.chunks - 1) * p.chunk_tokens, s.num_queries);
    EXPECT_GE(p.head_sets * p.heads_of_set, p.heads);
    EXPECT_LT((p.head_sets - 1) * p.heads_of_set, p.heads);
    EXPECT_GE(p.chunk_sets * p.chunks_of_set, p.chunks);
    EXPECT_LT((p.chunk_sets - 1) * p.chunks_of_set, p.chunks);
    EXPECT_GE(p.tiles * kKeysOfTile, s.num_keys);
  }
}

TEST(SelectedPlan, StripesCoverASetAndExistInTheForwardPassOnly) {
  for (const SelectedSizes& s : kSizes) {
    EXPECT_EQ(plan_selected(s).stripes, 1);
    const SelectedPlan p = plan_selected(forward(s));
    EXPECT_GE(p.stripes * p.stripe_chunks, p.chunks_of_set);
    EXPECT_LT((p.stripes - 1) * p.stripe_chunks, p.chunks_of_set);
    EXPECT_GE(p.items_of_head, p.stripes * p.tiles);
  }
  const SelectedPlan p = plan_selected(forward(kPaper64k));
  EXPECT_GT(p.stripes, 1);
  EXPECT_LE(p.stripe_chunks * p.chunk_tokens * 16 * 192 * 2, 16 << 20) << "rows of Q";
  EXPECT_EQ(plan_selected(forward({1, 4000, 4000, 1, 16, 192, 128, 6})).stripes, 2)
      << "what selected_gpu_test counts on";
}

TEST(SelectedPlan, TilesOfTheNewestTokensAreTheirOwnAndTheOneBefore) {
  EXPECT_EQ(first_dense_tile(64 * 7), 6);
  EXPECT_EQ(first_dense_tile(64 * 8 - 1), 6);
  EXPECT_EQ(first_dense_tile(63), -1);
}

TEST(SelectedPlan, ItemsHoldTheWorstLists) {
  for (const SelectedSizes& s : kSizes) {
    const SelectedPlan p = plan_selected(s);
    const int64_t pairs = int64_t{p.tokens_of_set()} * s.max_tiles_of_row;
    EXPECT_GE(p.items_of_head, p.tiles + pairs / p.pairs_of_item);
    EXPECT_EQ(p.pairs_of_item * s.group_size % 64, 0) << "an item ends within a tile of rows";
  }
}

TEST(SelectedPlan, ArraysFollowEachOtherAligned) {
  for (const SelectedSizes& s : kSizes) {
    const SelectedPlan p = plan_selected(s);
    const std::vector<size_t> offsets{p.offsets,    p.next_items, p.row_tiles, p.row_masks,
                                      p.row_counts, p.entries,    p.items,     p.first_item,
                                      p.parts,      p.slots,      p.sums,      p.bytes};
    EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
    for (const size_t offset : offsets) EXPECT_EQ(offset % 256, 0u);
    EXPECT_GE(p.entries - p.row_counts, size_t(p.heads) * s.num_queries * 4);
  }
}

TEST(SelectedPlan, OrderOfKeysIsForLargeProblems) {
  for (const int block : {0, 64, 128}) {
    EXPECT_TRUE(prefer_order_of_keys(kPaper64k, block));
    EXPECT_TRUE(prefer_order_of_keys({8, 2048, 2048, 2, 6, 64, 64, 16}, block));
    EXPECT_FALSE(prefer_order_of_keys({1, 512, 512, 2, 6, 64, 64, 8}, block));
    EXPECT_FALSE(prefer_order_of_keys({1, 1, 65536, 4, 16, 192, 128, 16}, block)) << "one query";
  }
}

TEST(SelectedPlan, PartsOfTilesGoByRowsWhereManyHeadsShareThem) {
  const auto by_keys = [](int group, int dk, int dv, int block) {
    return prefer_order_of_keys({1, 8192, 8192, 32 / group, group, dk, dv, 16}, block);
  };
  for (const int block : {16, 32}) {
    EXPECT_FALSE(by_keys(16, 64, 64, block));
    EXPECT_FALSE(by_keys(16, 192, 128, block));
    EXPECT_TRUE(by_keys(4, 64, 64, block));
    EXPECT_TRUE(by_keys(1, 192, 128, block));
  }
  EXPECT_FALSE(by_keys(8, 64, 64, 16));
  EXPECT_FALSE(by_keys(8, 192, 128, 16));
  EXPECT_TRUE(by_keys(8, 192, 128, 32));
  EXPECT_TRUE(by_keys(16, 64, 64, 48)) << "lies in two tiles";
  EXPECT_FALSE(prefer_order_of_keys({1, 256, 256, 8, 4, 64, 64, 16}, 16)) << "an index to build";
}

TEST(SelectedPlan, FirstQueriesAreDense) {
  EXPECT_EQ(dense_queries(forward({8, 2048, 2048, 2, 6, 64, 64, 16}), 0, 64), 2048);
  EXPECT_EQ(dense_queries(forward(kPaper64k), 0, 64), 3 * 16 * 64);
  EXPECT_EQ(dense_queries(forward(kPaper64k), 1000, 64), 3 * 16 * 64 - 1000) << "later positions";
  EXPECT_EQ(dense_queries(forward({1, 4096, 4096, 4, 16, 192, 128, 16}), 0, 64), 4096)
      << "no index for the last quarter";
  SelectedSizes many = forward(kPaper64k);
  many.max_tiles_of_row = 32;
  EXPECT_EQ(dense_queries(many, 0, 64), kDensePositions) << "one word a row";
  EXPECT_EQ(dense_queries(kPaper64k, kDensePositions, 64), 0);
}

TEST(SelectedPlan, ShortProblemsGoBackInWholeTilesOnly) {
  EXPECT_EQ(dense_queries({8, 2048, 2048, 2, 6, 64, 64, 16}, 0, 64), 2048);
  EXPECT_EQ(dense_queries({1, 512, 512, 2, 6, 64, 64, 8}, 0, 64), 512) << "no index is built";
  EXPECT_EQ(dense_queries({1, 100, 4096, 4, 16, 64, 64, 16}, 2460, 64), 100);
  EXPECT_EQ(dense_queries({1, 100, 4096, 4, 16, 64, 64, 16}, 2461, 64), 0);
  EXPECT_EQ(dense_queries(kPaper64k, 0, 64), 16 * 64 * 5 / 4)
      << "the others are in the order of keys";
  SelectedSizes joined = kPaper64k;
  joined.window = 512;  // which whole tiles spare
  EXPECT_EQ(dense_queries(joined, 0, 64), (16 * 64 + 716) * 5 / 4);
  joined.window = 1 << 20;
  EXPECT_EQ(dense_queries(joined, 0, 64), (16 * 64 + 1433) * 5 / 4);
  EXPECT_EQ(dense_queries({1, 5000, 5000, 1, 4, 64, 64, 16}, 0, 64), 0) << "half of the SMs idle";
  EXPECT_EQ(dense_queries({1, 100, 0, 1, 4, 64, 64, 1}, 0, 64), 0) << "no keys";
  EXPECT_EQ(dense_queries({8, 2048, 2048, 2, 6, 64, 64, 16}, 0, 0), 0) << "any ranges";
}

TEST(SelectedPlan, DenseNeedsWholeTiles) {
  for (const int block : {0, 1, 32, 63, 96})
    EXPECT_EQ(most_dense_queries(kPaper64k, 0, block), 0) << block;
  EXPECT_EQ(most_dense_queries(kPaper64k, 0, 128), kDenseBackwardPositions);
  EXPECT_EQ(most_dense_queries(forward(kPaper64k), 0, 128), kDensePositions);
  EXPECT_EQ(most_dense_queries(kPaper64k, -1, 64), 0);
  EXPECT_EQ(most_dense_queries(forward({1, 100, 4096, 1, 16, 64, 64, 1}), 4090, 64), 6);
  EXPECT_EQ(dense_queries(forward({1, 512, 512, 2, 6, 64, 64, 8}), 0, 64), 0)
      << "half of the SMs idle";
  EXPECT_EQ(dense_queries(forward({1, 5000, 5000, 1, 4, 64, 64, 1}), 0, 64), 0)
      << "the rest goes by rows";
}

TEST(SelectedPlan, IndexRefusesSizesBeyondItsTypes) {
  SelectedSizes s = kPaper64k;
  EXPECT_EQ(unsupported_index(s), nullptr);
  s.max_tiles_of_row = 0;
  EXPECT_STREQ(unsupported_index(s), "no bound on the key tiles of a row");
  s.max_tiles_of_row = 129;
  EXPECT_STREQ(unsupported_index(s), "more than 128 key tiles a row");
  s = kPaper64k;
  s.num_queries = s.num_keys = (1 << 24) + 1;
  EXPECT_NE(unsupported_index(s), nullptr);
}

TEST(SelectedPlan, MemoryAt64kIsHalfOfTheTensorsAndLinearInTokens) {
  const size_t bytes = plan_selected(kPaper64k).bytes;
  EXPECT_LE(bytes, tensor_bytes(kPaper64k) / 2);
  SelectedSizes longer = kPaper64k;
  longer.num_queries = longer.num_keys = 4 * 65536;
  EXPECT_LE(plan_selected(longer).bytes, 5 * bytes);
}

}  // namespace
}  // namespace nsa::kernels
