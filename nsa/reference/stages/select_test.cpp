#include "nsa/reference/stages/select.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

using SelectedIds = std::vector<int32_t>;
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

Config top(int64_t n, int64_t n_initial, int64_t n_local) {
  Config c;
  c.num_heads = c.num_kv_heads = 1;
  c.block_size = c.block_stride = c.sel_block_size = 2;
  c.top_n = n, c.n_initial = n_initial, c.n_local = n_local;
  return c;
}

/// At t = 9 with l' = 2 the current block is 4: five candidates.
SelectedIds at_t9(const Config& c, std::vector<double> scores) { return select_row(c, scores, 9); }

TEST(Select, ForcedBlocksAndTheBestOfTheRest) {
  EXPECT_EQ(at_t9(top(3, 1, 1), {0, 1, 7, 5, 0}),
            (SelectedIds{0, 2, 4}));  // 0 and 4 forced, 2 best
  // 0, 3 and 4 forced, 3 with the lowest score; 2 is the best of the rest.
  EXPECT_EQ(at_t9(top(4, 1, 2), {0, 6, 7, 1, 0}), (SelectedIds{0, 2, 3, 4}));
  EXPECT_EQ(at_t9(top(3, 0, 1), {9, 1, 7, 5, 0}),
            (SelectedIds{0, 2, 4}));  // 4 forced; 0 and 2 by score
  EXPECT_EQ(at_t9(top(3, 2, 1), {0, 0, 7, 5, 0}), (SelectedIds{0, 1, 4}));  // no place left
}

TEST(Select, ForcedSet) {
  // c = 4: initial {0, 1}, local {3, 4}; block 5 lies ahead.
  const Config c = top(4, 2, 2);
  const bool forced[] = {true, true, false, true, true, false};
  for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(is_forced(c, j, 9), forced[j]) << j;
  EXPECT_FALSE(is_forced(c, -1, 0));
}

TEST(Select, ScoresAreComparedAsTheyAre) {
  EXPECT_EQ(at_t9(top(3, 1, 1), {0, -2, -3, -1, 0}), (SelectedIds{0, 3, 4}));
  EXPECT_EQ(at_t9(top(3, 1, 1), {0, -kInf, kInf, 5, 0}), (SelectedIds{0, 2, 4}));
}

TEST(Select, TiesGoToTheLowerIndex) {
  EXPECT_EQ(at_t9(top(3, 1, 1), {9, 1, 5, 5, 9}), (SelectedIds{0, 2, 4}));
  EXPECT_EQ(at_t9(top(4, 1, 1), {0, 5, 5, 5, 0}), (SelectedIds{0, 1, 2, 4}));
  EXPECT_EQ(at_t9(top(3, 1, 1), {0, 0, 0, 0, 0}), (SelectedIds{0, 1, 4}));  // zeros fill places too
  EXPECT_EQ(at_t9(top(3, 1, 1), {0, -0.0, 0, 0, 0}), (SelectedIds{0, 1, 4}));  // -0 equals 0
}

TEST(Select, NanRanksBelowEveryNumber) {
  EXPECT_EQ(at_t9(top(3, 1, 1), {0, kNan, -kInf, kNan, 0}), (SelectedIds{0, 2, 4}));
  EXPECT_EQ(at_t9(top(4, 1, 1), {0, kNan, -1, kNan, 0}),
            (SelectedIds{0, 1, 2, 4}));  // then lower index
  EXPECT_EQ(at_t9(top(3, 1, 1), {kNan, 1, 2, 3, kNan}), (SelectedIds{0, 3, 4}));  // forced whatever
}

TEST(Select, ShortRowsHaveAsManyIdsAsBlocks) {
  const std::vector<double> scores(5, 0.0);
  EXPECT_EQ(select_row(top(4, 1, 2), scores, 0), (SelectedIds{0, -1, -1, -1}));  // initial == local
  EXPECT_EQ(select_row(top(4, 1, 2), scores, 1), (SelectedIds{0, -1, -1, -1}));
  EXPECT_EQ(select_row(top(4, 1, 2), scores, 2), (SelectedIds{0, 1, -1, -1}));
  EXPECT_EQ(select_row(top(4, 1, 2), scores, 5), (SelectedIds{0, 1, 2, -1}));
  EXPECT_EQ(select_row(top(7, 1, 2), scores, 9), (SelectedIds{0, 1, 2, 3, 4, -1, -1}));
  EXPECT_EQ(select_row(top(5, 4, 1), scores, 3),
            (SelectedIds{0, 1, -1, -1, -1}));  // n_initial > blocks
}

TEST(Select, LaterBlocksAreNoCandidates) {
  // t = 3: current block 1; block 2 has the best score and lies ahead.
  EXPECT_EQ(select_row(top(3, 0, 1), std::vector<double>{1, 1, 100}, 3), (SelectedIds{0, 1, -1}));
}

TEST(Select, WholeTensor) {
  // S = 3, l' = 2: two columns. n = 1, local 1: the current block only.
  EXPECT_EQ(select(top(1, 0, 1), Tensor<double>({1, 3, 1, 2})).values(), (SelectedIds{0, 0, 1}));
  EXPECT_EQ(error_of([] { select(top(1, 0, 1), Tensor<double>({1, 3, 1, 1})); }),
            "nsa::reference::select: scores must be [1, 3, 1, 2], got [1, 3, 1, 1]");
  EXPECT_EQ(error_of([] { select_row(top(1, 0, 1), std::vector<double>{0}, 2); }),
            "nsa::reference::select: scores must be at least 2 wide, got 1");
}

TEST(Select, Margin) {
  const auto margin = [](const Config& c, std::vector<double> s) {
    return selection_margin(c, s, 9);
  };
  EXPECT_EQ(margin(top(3, 1, 1), {0, 1, 7, 5, 0}), 2.0);  // 7 chosen, 5 rejected
  EXPECT_EQ(margin(top(4, 1, 1), {0, 1, 7, 5, 0}), 4.0);  // 5 chosen, 1 rejected
  EXPECT_EQ(margin(top(3, 1, 1), {0, 7, 7, 5, 0}), 0.0);
  EXPECT_EQ(margin(top(3, 2, 1), {0, 1, 7, 5, 0}), kInf);  // no free place
  EXPECT_EQ(margin(top(5, 1, 1), {0, 1, 7, 5, 0}), kInf);  // nothing rejected
}

}  // namespace
}  // namespace nsa::reference
