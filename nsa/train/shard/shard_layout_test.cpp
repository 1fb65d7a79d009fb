#include "nsa/train/shard/shard_layout.h"

#include <gtest/gtest.h>

namespace nsa::train {
namespace {

TEST(ShardLayout, PiecesOfAllRanksAreEveryParameterOnce) {
  const std::vector<int64_t> sizes = {1, 64, 3, 1000, 65, 128};
  for (int64_t ranks = 1; ranks <= 9; ++ranks) {
    const ShardLayout layout(sizes, ranks);
    EXPECT_EQ(layout.total(), layout.shard() * ranks);
    EXPECT_EQ(layout.shard() % ShardLayout::kAligned, 0);
    EXPECT_LT(layout.total(), 1261 + 6 * 64 + ranks * 64);
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(layout.offset(i) % ShardLayout::kAligned, 0);
      int64_t next = 0;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        const ShardLayout::Piece piece = layout.piece(i, rank);
        if (piece.size == 0) continue;
        EXPECT_EQ(piece.in_parameter, next) << "parameter " << i << " rank " << rank;
        EXPECT_EQ(piece.in_parameter % ShardLayout::kAligned, 0);
        EXPECT_EQ(rank * layout.shard() + piece.in_shard, layout.offset(i) + piece.in_parameter);
        EXPECT_LE(piece.in_shard + piece.size, layout.shard());
        next += piece.size;
      }
      EXPECT_EQ(next, sizes[i]) << "parameter " << i << " of " << ranks << " ranks";
    }
  }
}

TEST(ShardLayout, ByHand) {
  const ShardLayout layout({100, 10, 50}, 2);  // at 0, 128, 192; 256 in all
  EXPECT_EQ(layout.total(), 256);
  EXPECT_EQ(layout.offset(2), 192);
  EXPECT_EQ(layout.piece(0, 0).size, 100);
  EXPECT_EQ(layout.piece(0, 1).size, 0);
  EXPECT_EQ(layout.piece(2, 1).in_shard, 64);
  const ShardLayout three({100}, 3);  // 64 of each rank, 36 on the second, none on the third
  EXPECT_EQ(three.piece(0, 1).size, 36);
  EXPECT_EQ(three.piece(0, 1).in_parameter, 64);
  EXPECT_EQ(three.piece(0, 2).size, 0);
}

}  // namespace
}  // namespace nsa::train
