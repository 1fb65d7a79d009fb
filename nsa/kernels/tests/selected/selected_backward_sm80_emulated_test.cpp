// The backward pass of the selected branch by code of sm_80, as its launcher runs it, in the
// emulator: against plain fp64 loops, and the same bits in every order.
#include <cmath>
#include <vector>

#include "nsa/kernels/common/size_limits.h"
#include "nsa/kernels/selected/selected_plan.h"
#include "nsa/kernels/selected/selected_sums.h"
#include "nsa/kernels/selected/sm80/selected_backward_launch.h"
#include "nsa/kernels/selected/tile_index.h"
#include "nsa/kernels/tests/selected/selected_emulated_runs.h"

namespace nsa::kernels::emulator {
namespace {

TEST(SelectedBackwardEmulated, AllDimsAndTypes) {
  for (const auto& d : kDimsOfSm80)
    for (const bool half : {false, true}) {
      expect_case({1, 130, 3, 1, d[0], d[1], half});
      SelectedCase blocks{1, 100, 2, 2, d[0], d[1], half};
      blocks.blocks = true;
      expect_case(blocks, {3});
    }
}

TEST(SelectedBackwardEmulated, HeadDimsOf256AreRefusedByCodeOfSm90) {
  SelectedCase c{1, 10, 1, 1, 256, 256};
  c.code = Code::kSm90;
  const SelectedProblem x(c);
  EXPECT_STREQ(unsupported_reason(x.launched()), kSm80HeadDims);
  c.code = Code::kSm80;
  EXPECT_EQ(unsupported_reason(SelectedProblem(c).launched()), nullptr);
}

/// A lane has two of more than 32 ranges: in any order, and as those of chosen blocks.
TEST(SelectedBackwardEmulated, MoreRangesThanLanes) {
  for (const int ranges : {33, 64}) {
    SelectedCase c{1, 20, 2, 1, 64, 64, ranges == 33, ranges, 1600};
    expect_case(c);
    SelectedProblem ordered(c);
    for (size_t i = 0; i < ordered.ranges.size(); ++i) {
      const int place = static_cast<int>(i / 2) % ranges;
      ordered.ranges[i] = place * 25 + (i % 2 == 0 ? 0 : place % 3 == 0 ? 25 : 16);
    }
    ordered.run_forward();
    const Results have = run(ordered, 0);
    expect_right(ordered, have, ordered.gradients());
    EXPECT_TRUE(run(ordered, 3) == have);
  }
}

TEST(SelectedBackwardEmulated, AllOrdersHaveTheSameBits) {
  for (const auto& d : kDimsOfSm80) expect_case({1, 80, 4, 1, d[0], d[1]}, {1, 2, 3, 4, 5, 6, 7});
}

TEST(SelectedBackwardEmulated, AllGroupSizes) {
  for (const int group : {1, 2, 3, 4, 6, 8, 12, 16, 64}) {
    SelectedCase c{1, 65, group, 1, 64, 64, group % 4 == 0};
    c.blocks = group % 3 == 0;
    expect_case(c, {2});
  }
}

TEST(SelectedBackwardEmulated, LengthsAroundTiles) {
  for (const int s : {1, 63, 64, 65, 200}) {
    expect_case({1, s, 2, 2, 64, 64}, {4});
    expect_case({1, s, 1, 1, 128, 128, true}, {5});
  }
}

TEST(SelectedBackwardEmulated, LaterPositionsBatchesStridesAndGradientOfLse) {
  for (const auto& d : kDimsOfSm80)
    for (const bool half : {false, true}) {
      SelectedCase c{2, 30, 3, 2, d[0], d[1], half, 5, 131};
      c.with_d_lse = true;
      expect_case(c, {});
    }
}

TEST(SelectedBackwardEmulated, NonFiniteValuesReachOnlyRowsThatAttendThem) {
  bool half = false;
  for (const auto& d : kDimsOfSm80) {
    half = !half;
    SelectedCase c{1, 100, 2, 2, d[0], d[1], half, 5};
    const SelectedProblem clean(c);
    const Results good = run(clean, 0);
    const SelectedGradients want_good = clean.gradients();
    for (const int bad : {1, 2, 4, 8, 15}) {
      c.bad = bad;
      SCOPED_TRACE(c.name());
      const SelectedProblem spoiled(c);
      const Results have = run(spoiled, 3);
      const SelectedGradients want = spoiled.gradients();
      expect_right(spoiled, have, want);
      int kept = 0, changed = 0;
      expect_kept(have.q, good.q, want.q, want_good.q, c.dk, kept, changed);
      expect_kept(have.k, good.k, want.k, want_good.k, c.dk, kept, changed);
      expect_kept(have.v, good.v, want.v, want_good.v, c.dv, kept, changed);
      EXPECT_GT(kept, 0);
      EXPECT_GT(changed, 0);
    }
  }
}

TEST(SelectedBackwardEmulated, InfiniteKeysAndValuesReachOnlyRowsThatAttendThem) {
  const SelectedCase c{1, 130, 2, 1, 128, 128};
  SelectedProblem clean(c), spoiled(c);
  const int key = 70, value = 90;
  for (SelectedProblem* x : {&clean, &spoiled})  // logits of -inf, which leave lse finite
    for (int t = 0; t < c.s; ++t)
      for (int head = 0; head < c.heads(); ++head) x->q.set(0, t, head, 7, 1.f + float(t % 3));
  clean.run_forward();
  spoiled.k.set(0, key, 0, 7, -INFINITY);
  spoiled.v.set(0, value, 0, 5, -INFINITY);
  spoiled.run_forward();
  const Results good = run(clean, 1), have = run(spoiled, 2);
  int reached = 0, others = 0;
  spoiled.for_rows([&](int b, int t, int head, int, const std::vector<int>& keys) {
    const size_t row = spoiled.row_of(b, t, head);
    bool attends = false;
    for (const int one : keys) attends |= one == key || one == value;
    (attends ? reached : others) += 1;
    if (!attends) {
      EXPECT_TRUE(same_row(have.q, good.q, row, c.dk)) << row;
    } else {
      for (int i = 0; i < c.dk; ++i)
        EXPECT_FALSE(std::isfinite(value_of(have.q[row * c.dk + i], c.half))) << row;
    }
  });
  EXPECT_GT(reached, 0);
  EXPECT_GT(others, 0);
  for (int i = 0; i < c.dv; ++i)
    EXPECT_TRUE(std::isnan(value_of(have.v[size_t(key) * c.dv + i], c.half)));
}

TEST(SelectedBackwardEmulated, StatisticsMayBeGiven) {
  for (const bool half : {false, true}) {
    SelectedProblem x({1, 70, 3, 2, 64, 64, half});
    std::vector<float> stats;
    const std::vector<double> d_out = x.d_out.values(), out = x.out.values();
    for (size_t row = 0; row < x.lse.size(); ++row) {
      stats.push_back(x.lse[row] * 1.4426950408889634f);
      stats.push_back(static_cast<float>(x.delta_of(row, d_out, out)));
    }
    Results have;
    SelectedBackward p = problem_into(x, have);
    p.stats = stats.data();
    p.out = nullptr, p.lse = nullptr;
    launch_with(p, 2);
    expect_right(x, have, x.gradients());
  }
}

TEST(SelectedBackwardEmulated, GradientsOfOtherBranchesAreAddedAndRotatedBack) {
  for (const auto& d : kDimsOfSm80)
    for (const bool half : {false, true})
      for (const bool turned : {false, true}) {
        const SelectedCase c{2, 70, 3, 2, d[0], d[1], half};
        SCOPED_TRACE(c.name());
        const SelectedProblem x(c);
        Joined joined(c), again(c);
        Results have, other;
        SelectedBackward p = problem_into(x, have);
        p.joined = joined.launched(turned);
        launch_with(p, 0);
        const SelectedGradients want = x.gradients();
        EXPECT_LE(distance(joined.out(), joined.expected(want.q, turned), half),
                  half ? 2e-3 : 1.5e-2);
        EXPECT_TRUE(joined.gaps_are_untouched());
        EXPECT_EQ(have.q, std::vector<uint16_t>(have.q.size(), 0xffff)) << "d_q was written, too";
        p = problem_into(x, other);
        p.joined = again.launched(turned);
        launch_with(p, 3);
        EXPECT_EQ(again.room, joined.room) << "other bits in another order";
      }
}

TEST(SelectedBackwardEmulated, JoinedGradientMayOverwriteATerm) {
  const SelectedCase c{1, 100, 4, 1, 64, 64};
  const SelectedProblem x(c);
  Joined joined(c);
  Results have;
  SelectedBackward p = problem_into(x, have);
  const std::vector<double> want = joined.expected(x.gradients().q, true);
  p.joined = joined.launched(true);
  p.joined.out = joined.first.bits.data(), p.joined.out_stride = joined.row();
  launch_with(p, 1);
  EXPECT_LE(distance(joined.first.bits, want, c.half), 1.5e-2);
  p.joined.out_stride = joined.row() + 4;
  EXPECT_NE(unsupported_reason(p), nullptr) << "rows that are not aligned";
}

TEST(SelectedBackwardEmulated, RowsBeyondMaxTilesAreNaN) {
  const SelectedProblem x({1, 200, 2, 1, 64, 64});
  Results have;
  SelectedBackward p = problem_into(x, have);
  p.max_tiles_of_row = 2;
  launch_with(p, 0);
  std::vector<double> want = x.gradients().q;
  int broken = 0;
  x.for_rows([&](int b, int t, int head, int, const std::vector<int>& keys) {
    std::vector<int> tiles;
    for (const int key : keys)
      if (tiles.empty() || tiles.back() != key / 64) tiles.push_back(key / 64);
    if (tiles.size() <= 2) return;
    ++broken;
    for (int i = 0; i < x.c.dk; ++i) want[x.row_of(b, t, head) * x.c.dk + i] = NAN;
  });
  EXPECT_GT(broken, 0);
  EXPECT_LE(distance(have.q, want, x.c.half), 1.5e-2);
}

TEST(SelectedBackwardEmulated, RangesOfPackedDocuments) {
  expect_documents({1, 0, 4, 2, 64, 64}, 50, 8, 4);
  expect_documents({1, 0, 16, 1, 64, 64, true}, 100, 32, 16);
  expect_documents({1, 0, 3, 1, 192, 128}, 70, 4, 4);
}

TEST(SelectedBackwardEmulated, WholeTilesHaveNoKernel) {
  SelectedCase c{1, 100, 2, 1, 64, 64};
  c.blocks = true;
  const SelectedProblem x(c);
  Results to;
  SelectedBackward p = problem_into(x, to);
  EXPECT_EQ(dense_queries(p), 0);
  p.dense = 10;
  EXPECT_NE(unsupported_reason(p), nullptr);
  EXPECT_EQ(selected_attention_backward(p, nullptr, nullptr), cudaErrorInvalidValue);
}

TEST(SelectedBackwardEmulated, SetsOfHeadsAndOfTokens) {
  const SelectedCase c{2, 100, 3, 2, 64, 64};
  const SelectedProblem x(c);
  const SelectedGradients want = x.gradients();
  for (const auto& [heads, chunks] : {std::pair(3, 4), std::pair(1, 4), std::pair(1, 1)}) {
    Results have;
    SelectedBackward p = problem_into(x, have);
    std::vector<float> stats(x.lse.size() * 2);
    ASSERT_EQ(portable::row_stats(p, stats.data(), nullptr), cudaSuccess);
    p.stats = stats.data();
    const SelectedSizes sizes = selected_sizes(p, p.max_tiles_of_row, SelectedPass::kBackward);
    const SelectedPlan plan = cut_smaller(plan_selected(sizes), sizes, heads, chunks);
    ASSERT_EQ(plan.chunks, 4);
    run_sets(p, plan, sm80::selected_backward_64_64_bf16);
    expect_right(x, have, want);
    Joined joined(c);
    p.joined = joined.launched(true);
    run_sets(p, plan, sm80::selected_backward_64_64_bf16);
    EXPECT_LE(distance(joined.out(), joined.expected(want.q, true), c.half), 1.5e-2);
  }
}

}  // namespace
}  // namespace nsa::kernels::emulator
