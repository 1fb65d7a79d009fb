#include "nsa/reference/stages/ranges.h"

#include <gtest/gtest.h>

#include <limits>

#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

using Ints = std::vector<int32_t>;

/// l' = 4.
Ints walk(Ints ids, int64_t t) { return ranges_row(ids, 4, t); }

TEST(Ranges, NeighboursMergeAndTheEndIsClamped) {
  EXPECT_EQ(walk({0, 2, 3}, 13), (Ints{0, 4, 8, 14, 0, 0}));  // 3 = [12,16) cut at t+1 = 14
  EXPECT_EQ(walk({0, 1, 2}, 11), (Ints{0, 12, 0, 0, 0, 0}));
  EXPECT_EQ(walk({0, 2, 4}, 100), (Ints{0, 4, 8, 12, 16, 20}));
  EXPECT_EQ(walk({3}, 12), (Ints{12, 13}));
}

TEST(Ranges, UnusedPlaces) {
  EXPECT_EQ(walk({0, 1, -1, -1}, 7), (Ints{0, 8, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(walk({-1, -1}, 7), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(walk({}, 7), Ints{});
}

TEST(Ranges, DroppedIdsHaveNoEffect) {
  EXPECT_EQ(walk({2, 1, 3}, 20), (Ints{8, 16, 0, 0, 0, 0}));   // 1 is unsorted: 2, 3 still merge
  EXPECT_EQ(walk({1, 1, 2}, 20), (Ints{4, 12, 0, 0, 0, 0}));   // duplicate
  EXPECT_EQ(walk({1, -7, 2}, 20), (Ints{4, 12, 0, 0, 0, 0}));  // negative in between
  EXPECT_EQ(walk({1, 9, 2}, 20), (Ints{4, 12, 0, 0, 0, 0}));   // 36 > t: not yet there
  EXPECT_EQ(walk({5, 6}, 20), (Ints{20, 21, 0, 0}));           // 5*4 = 20 <= t, 6 dropped
  EXPECT_EQ(walk({3, 0, 1, 2}, 20), (Ints{12, 16, 0, 0, 0, 0, 0, 0}));
}

TEST(Ranges, ExtremeIds) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(walk({kMax, std::numeric_limits<int32_t>::min(), 0}, 2), (Ints{0, 3, 0, 0, 0, 0}));
}

TEST(Ranges, WholeTensorRestartsAtEveryRow) {
  // l' = 2; rows t = 0, 1, 2 with ids (0, 1).
  const Tensor<int32_t> r = ranges(Tensor<int32_t>({1, 3, 1, 2}, {0, 1, 0, 1, 0, 1}), 2);
  EXPECT_EQ(r.values(), (Ints{0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0}));
  EXPECT_EQ(ranges(Tensor<int32_t>({1, 3, 1, 0}), 2).shape(), (Shape{1, 3, 1, 0, 2}));
}

TEST(Ranges, Errors) {
  EXPECT_EQ(error_of([] { ranges(Tensor<int32_t>({1, 3, 1}), 2); }),
            "nsa::reference::ranges: block_idx must be [B,S,Hkv,K], got [1, 3, 1]");
  EXPECT_EQ(error_of([] { ranges(Tensor<int32_t>({1, 3, 1, 1}), 0); }),
            "nsa::reference::ranges: sel_block_size must be at least 1, got 0");
}

}  // namespace
}  // namespace nsa::reference
