// The backward pass of the selected branch by code of sm_90, as its launcher runs it, in the
// emulator: index, products, sums and whole tiles against plain fp64 loops, and the same bits in
// every order.
#include <algorithm>
#include <cmath>
#include <vector>

#include "nsa/kernels/selected/sm90/selected_backward_launch.h"
#include "nsa/kernels/tests/selected/selected_emulated_runs.h"
#include "nsa/kernels/tests/selected/selected_window.h"

namespace nsa::kernels::emulator {
namespace {

/// Whether cases of these dims are of fp16.
bool half_at(int qk_head_dim) { return qk_head_dim == 128 && !kSanitized; }

SelectedCase blocks(SelectedCase c, int dense = 0) {
  c.blocks = true, c.dense = dense;
  return c;
}
/// All queries in the order of keys and, where they attend blocks, all and some in whole tiles.
void expect_ways(SelectedCase c, std::vector<uint64_t> others = {1, 2}) {
  if (kSanitized) others.clear();  // other builds compare bits
  c.code = Code::kSm90;
  for (const int dense : {0, std::max(c.s * 3 / 5, 1), c.s}) {
    if (dense > 0 && !c.blocks) break;
    if (kSanitized && c.blocks && (dense == 0 || dense == c.s) && c.s > 1) continue;
    c.dense = dense;
    expect_case(c, others);
  }
}

TEST(SelectedBackwardSm90, AnyRanges) {
  for (const auto& d : kDims) expect_ways({1, 130, 3, 1, d[0], d[1]});
  expect_ways({1, 100, 4, 2, 128, 128, half_at(128)});
}

TEST(SelectedBackwardSm90, BlocksOfAllGroups) {
  for (const auto& d : kDims)
    for (const int group : {1, 4, 6, 16})
      expect_ways(blocks({1, 170, group, 1, d[0], d[1], group == 4 && half_at(d[0]), 4}), {1});
}

TEST(SelectedBackwardSm90, OtherGroups) {
  for (const int group : {2, 5, 12, 64}) {
    expect_ways({1, 70, group, 1, 128, 128, half_at(128)}, {2});
    expect_ways(blocks({1, 130, group, 1, 64, 64}), {3});
  }
}

TEST(SelectedBackwardSm90, AllOrdersHaveTheSameBits) {
  for (const auto& d : kDims) {
    expect_ways(blocks({1, 150, 4, 1, d[0], d[1], false, 4}), {1, 2, 3, 4, 5, 6, 7});
    // Several items a CTA.
    expect_ways({2, 100, 3, 2, d[0], d[1], false, 2}, {1, 2, 3, 4, 5, 6, 7});
  }
}

TEST(SelectedBackwardSm90, LengthsAroundTiles) {
  for (const auto& d : kDims)
    for (const int s : {1, 63, 64, 65, 129}) {
      expect_ways({1, s, 2, 2, d[0], d[1]}, {4});
      expect_ways(blocks({1, s, 6, 2, d[0], d[1]}), {5});
    }
}

TEST(SelectedBackwardSm90, LaterPositionsBatchesStridesAndGradientOfLse) {
  for (const auto& d : kDims) {
    SelectedCase c{2, 51, 6, 2, d[0], d[1], half_at(d[0]), 5, 131};
    c.with_d_lse = true;
    expect_ways(c, {3});
    expect_ways(blocks(c), {6});
  }
}

TEST(SelectedBackwardSm90, HighestTileOfAWord) {
  for (const auto& d : kDims)
    expect_ways(blocks({1, 40, 16, 1, d[0], d[1], false, 16, 63 * 64 - 40}), {});
}

void expect_spoiled(SelectedCase c, uint64_t order) {
  c.code = Code::kSm90;
  const SelectedProblem clean(c);
  const Results good = run(clean, 0);
  const SelectedGradients want_good = clean.gradients();
  for (const int bad : {3, 4, 8}) {
    if (kSanitized && bad != 8) continue;
    c.bad = bad;
    SCOPED_TRACE(c.name());
    const SelectedProblem spoiled(c);
    const Results have = run(spoiled, order);
    const SelectedGradients want = spoiled.gradients();
    expect_right(spoiled, have, want);
    if (c.dense > 0) continue;  // gradients that are not finite there are computed anew
    int kept = 0, changed = 0;
    expect_kept(have.q, good.q, want.q, want_good.q, c.dk, kept, changed);
    expect_kept(have.k, good.k, want.k, want_good.k, c.dk, kept, changed);
    expect_kept(have.v, good.v, want.v, want_good.v, c.dv, kept, changed);
    EXPECT_GT(kept, 0);
    EXPECT_GT(changed, 0);
  }
}

TEST(SelectedBackwardSm90, NonFiniteValuesReachOnlyRowsThatAttendThem) {
  for (const auto& d : kDims) {
    expect_spoiled({1, 100, 2, 2, d[0], d[1], half_at(d[0]), 5}, 3);
    for (const int dense : {0, 150, 213})
      expect_spoiled(blocks({1, 213, 4, 1, d[0], d[1], false, 3}, dense), 2);
  }
}

/// A key's -inf that gives logits of -inf, and a value's.
TEST(SelectedBackwardSm90, InfiniteKeysAndValuesReachOnlyRowsThatAttendThem) {
  for (const int dense : {0, 213}) {
    SelectedCase c = blocks({1, 213, 2, 1, 128, 128}, dense);
    c.code = Code::kSm90;
    SelectedProblem spoiled(c);
    for (int t = 0; t < c.s; ++t)
      for (int head = 0; head < c.heads(); ++head) spoiled.q.set(0, t, head, 7, 1.f + t % 3);
    const int key = 70, value = 90;
    spoiled.k.set(0, key, 0, 7, -INFINITY);
    spoiled.v.set(0, value, 0, 5, -INFINITY);
    spoiled.run_forward();
    const Results have = run(spoiled, 1);
    const SelectedGradients want = spoiled.gradients();
    int reached = 0, others = 0;
    spoiled.for_rows([&](int b, int t, int head, int, const std::vector<int>& keys) {
      bool attends = false;
      for (const int one : keys) attends |= one == key || one == value;
      (attends ? reached : others) += 1;
      for (int i = 0; i < c.dk; ++i) {
        const size_t at = spoiled.row_of(b, t, head) * c.dk + i;
        const bool finite = std::isfinite(value_of(have.q[at], c.half));
        // In the order of keys the whole row is not finite, in whole tiles the elements that the
        // formula gives.
        EXPECT_EQ(finite, dense > 0 ? std::isfinite(want.q[at]) : !attends) << t << ", " << i;
        EXPECT_TRUE(attends || std::isfinite(want.q[at]));
      }
    });
    EXPECT_GT(reached, 0);
    EXPECT_GT(others, 0);
  }
}

TEST(SelectedBackwardSm90, GradientsOfOtherBranchesAreAddedAndRotatedBack) {
  for (const auto& d : kDims)
    for (const int dense : {0, 100}) {
      SelectedCase c = blocks({2, 170, 3, 2, d[0], d[1], half_at(d[0]), 4}, dense);
      c.code = Code::kSm90;
      SCOPED_TRACE(c.name());
      const SelectedProblem x(c);
      Joined joined(c), again(c);
      Results have, other;
      SelectedBackward p = problem_into(x, have);
      p.joined = joined.launched(true);
      launch_with(p, 0);
      const std::vector<double> alone = x.gradients().q, both = joined.expected(alone, true);
      const std::vector<uint16_t> out = joined.out();
      for (int b = 0; b < c.batch; ++b) {  // the first queries in d_q, the others joined
        const size_t begin = size_t(b) * c.s * joined.row(), end = begin + c.s * joined.row(),
                     cut = begin + dense * joined.row();
        const auto part = [](const auto& of, size_t from, size_t to) {
          return std::decay_t<decltype(of)>(of.begin() + from, of.begin() + to);
        };
        const double bound = c.half ? 2e-3 : 1.5e-2;
        EXPECT_LE(distance(part(out, cut, end), part(both, cut, end), c.half), bound);
        EXPECT_LE(distance(part(have.q, begin, cut), part(alone, begin, cut), c.half), bound);
        EXPECT_EQ(part(out, begin, cut), std::vector<uint16_t>(cut - begin, 0xffff));
        EXPECT_EQ(part(have.q, cut, end), std::vector<uint16_t>(end - cut, 0xffff));
      }
      EXPECT_TRUE(joined.gaps_are_untouched());
      p = problem_into(x, other);
      p.joined = again.launched(true);
      launch_with(p, 3);
      EXPECT_TRUE(again.room == joined.room && other == have) << "other bits in another order";
    }
}

/// The window branch joins: right with it, and the same bits in other orders.
void expect_window(SelectedCase c, int window, std::vector<uint64_t> others = {1}) {
  if (kSanitized) others.clear();
  c.blocks = true, c.code = Code::kSm90, c.dense = c.dense > 0 ? c.dense : c.s;
  SCOPED_TRACE(c.name() + " window " + std::to_string(window));
  const SelectedProblem x(c);
  WindowBranch branch(x, window, c.dense);
  const auto launched = [&](uint64_t order) {
    Results have;
    SelectedBackward p = problem_into(x, have);
    p.window = branch.joined();
    launch_with(p, order);
    return have;
  };
  const Results have = launched(0);
  expect_right(x, have, branch.add_to(x.gradients()));
  for (const uint64_t order : others)
    EXPECT_TRUE(launched(order) == have) << "other bits in order " << order;
}

TEST(SelectedBackwardSm90, TheWindowBranchJoins) {
  for (const auto& d : kDims) {
    for (const int group : {1, 4, 6, 16})
      expect_window({1, 420, group, 1, d[0], d[1], group == 4 && half_at(d[0]), 5},
                    group == 1 ? 256 : 270);
    expect_window({2, 60, 2, 2, d[0], d[1], false, 4, 331}, 320, {3});
    expect_window({1, 140, 3, 1, d[0], d[1], false, 3}, 1000, {});
    SelectedCase some{2, 400, 3, 2, d[0], d[1], false, 4};
    some.dense = 350;  // the others in the order of keys, without it
    expect_window(some, 256);
  }
}

TEST(SelectedBackwardSm90, NonFiniteValuesReachRowsThatAttendThemInEitherBranch) {
  constexpr int kBad[3] = {3, 4, 8};
  for (int i = 0; i < 3; ++i)
    expect_window({1, 340, 4, 1, kDims[i][0], kDims[i][1], false, 3, 0, true, kBad[i]}, 256, {2});
}

TEST(SelectedBackwardSm90, TheWindowJoinsWholeTilesOnly) {
  SelectedCase c = blocks({1, 100, 2, 1, 64, 64});
  c.code = Code::kSm90;
  const SelectedProblem x(c);
  WindowBranch branch(x, 256, 0);
  SelectedBackward p = x.launched();
  p.window = branch.joined();
  const char* const refusal = "a window joins queries in whole tiles only, and from 256 tokens on";
  EXPECT_STREQ(unsupported_reason(p), refusal);
  p.dense = c.s, p.window.size = 255;
  EXPECT_STREQ(unsupported_reason(p), refusal);
  p.window.size = 256;
  EXPECT_EQ(unsupported_reason(p), nullptr);
}

/// d_q of the rows that must not be computed is NaN, all else right; there are some of each.
template <class IsBroken>
void expect_broken(const SelectedProblem& x, const Results& have, const IsBroken& is_broken) {
  std::vector<double> want = x.gradients().q;
  int broken = 0, whole = 0;
  x.for_rows([&](int b, int t, int head, int, const std::vector<int>& keys) {
    const bool expected = is_broken(keys, t);
    (expected ? broken : whole) += 1;
    for (int i = 0; i < x.c.dk && expected; ++i) want[x.row_of(b, t, head) * x.c.dk + i] = NAN;
  });
  EXPECT_GT(broken, 0);
  EXPECT_GT(whole, 0);
  EXPECT_LE(distance(have.q, want, x.c.half), 1.5e-2);
}

TEST(SelectedBackwardSm90, RowsBeyondMaxTilesAreNaN) {
  for (const auto& d : kDims) {
    SelectedCase c{1, 200, 2, 1, d[0], d[1]};
    c.code = Code::kSm90;
    const SelectedProblem x(c);
    Results have;
    SelectedBackward p = problem_into(x, have);
    p.max_tiles_of_row = 2;
    launch_with(p, 1);
    expect_broken(x, have, [](const std::vector<int>& keys, int) {
      std::vector<int> tiles;
      for (const int key : keys)
        if (tiles.empty() || tiles.back() != key / 64) tiles.push_back(key / 64);
      return tiles.size() > 2;
    });
  }
}

TEST(SelectedBackwardSm90, RangesThatAreNoBlocksAreNaN) {
  for (const auto& d : kDims) {
    SelectedCase c{1, 200, 4, 1, d[0], d[1], false, 1};
    c.code = Code::kSm90;
    SelectedProblem x(c);
    x.c.blocks = true, x.c.dense = c.s;  // which they are not
    for (int t = 0; t < c.s; ++t) {
      x.ranges[2 * t] = t % 5 == 0 ? 64 : 0;
      x.ranges[2 * t + 1] = t % 3 == 0 ? t + 1 : std::min(t + 1, t % 7 == 0 ? 40 : 128);
    }
    x.run_forward();
    expect_broken(x, run(x, 2), [&](const std::vector<int>&, int t) {
      const int begin = x.ranges[2 * t], end = x.ranges[2 * t + 1];
      return begin < end && end != t + 1 && end % 64 != 0;
    });
  }
}

TEST(SelectedBackwardSm90, RangesOfPackedDocuments) {
  const auto expect = [](SelectedCase c, int window, int extent, int stride) {
    c.code = Code::kSm90;
    expect_documents(c, window, extent, stride);
  };
  expect({1, 0, 4, 2, 64, 64}, 50, 8, 4);
  expect({1, 0, 16, 1, 128, 128, true}, 100, 32, 16);
  expect({1, 0, 3, 1, 192, 128}, 70, 4, 4);
}

TEST(SelectedBackwardSm90, SetsOfHeadsAndOfTokens) {
  SelectedCase c{2, 100, 3, 2, 64, 64};
  c.code = Code::kSm90;
  const SelectedProblem x(c);
  const SelectedGradients want = x.gradients();
  for (const auto& [heads, chunks] : {std::pair(3, 4), std::pair(1, 4), std::pair(1, 1)}) {
    Results have;
    SelectedBackward p = problem_into(x, have);
    std::vector<float> stats(x.lse.size() * 2);
    ASSERT_EQ(portable::row_stats(p, stats.data(), nullptr), cudaSuccess);
    p.stats = stats.data();
    const SelectedSizes sizes = selected_sizes(p, p.max_tiles_of_row, SelectedPass::kBackward);
    run_sets(p, cut_smaller(plan_selected(sizes), sizes, heads, chunks),
             sm90::selected_backward_64_64_bf16);
    expect_right(x, have, want);
  }
}

}  // namespace
}  // namespace nsa::kernels::emulator
