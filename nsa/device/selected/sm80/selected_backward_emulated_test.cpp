// The backward pass of the selected branch by code of sm_80, as its launcher runs it, in the
// emulator: against plain fp64 loops, and the same bits in every order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "nsa/device/emulator/order.h"
#include "nsa/device/selected/selected_host_problem.h"
#include "nsa/device/selected/selected_plan.h"
#include "nsa/device/selected/selected_sums.h"
#include "nsa/device/selected/sm80/selected_backward_launch.h"
#include "nsa/device/selected/tile_index.h"

namespace nsa::device::emulator {
namespace {

constexpr int kDims[3][2] = {{64, 64}, {128, 128}, {192, 128}};

struct Results {
  std::vector<uint16_t> q, k, v;
  bool operator==(const Results&) const = default;
};

struct Workspace {
  std::vector<char> bytes;
  Workspace(size_t size, char fill) : bytes(size + 256, fill) {}
  void* begin() {
    return bytes.data() + (256 - reinterpret_cast<uintptr_t>(bytes.data()) % 256) % 256;
  }
};

SelectedBackward problem_into(const SelectedProblem& x, Results& to) {
  SelectedBackward p = x.launched();
  to.q.assign(x.lse.size() * x.c.dk, 0xffff);
  const size_t keys = size_t(x.c.batch) * x.c.n() * x.c.kv_heads;
  to.k.assign(keys * x.c.dk, 0xffff);
  to.v.assign(keys * x.c.dv, 0xffff);
  p.d_q = to.q.data(), p.d_k = to.k.data(), p.d_v = to.v.data();
  return p;
}

void launch_with(const SelectedBackward& p, uint64_t order) {
  set_order(order);
  ASSERT_EQ(unsupported_reason(p), nullptr) << unsupported_reason(p);
  Workspace workspace(workspace_bytes(p), order % 2 == 0 ? '\xff' : '\x3f');
  ASSERT_EQ(selected_attention_backward(p, workspace.begin(), nullptr), cudaSuccess);
}

Results run(const SelectedProblem& x, uint64_t order) {
  Results to;
  launch_with(problem_into(x, to), order);
  return to;
}

/// Largest error over the largest value; infinite where exactly one is not finite.
double distance(const std::vector<uint16_t>& have, const std::vector<double>& want, bool half) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double h = value_of(have[i], half), w = want[i];
    if (std::isfinite(w)) largest = std::fmax(largest, std::fabs(w));
    if (h == w || (std::isnan(w) && std::isnan(h))) continue;
    const double difference = std::fabs(h - w);
    error = std::isfinite(difference) ? std::fmax(error, difference) : INFINITY;
  }
  return std::isinf(error) || largest < 1e-12 ? error : error / largest;
}

void expect_right(const SelectedProblem& x, const Results& have, const SelectedGradients& want) {
  const bool half = x.c.half;
  const double bound = half ? 2e-3 : 1.5e-2;
  EXPECT_LE(distance(have.q, want.q, half), bound) << x.c.name() << ": d_q";
  EXPECT_LE(distance(have.k, want.k, half), bound) << x.c.name() << ": d_k";
  EXPECT_LE(distance(have.v, want.v, half), bound) << x.c.name() << ": d_v";
}

/// Right in the order of its number, and with the same bits in others.
void expect_case(const SelectedCase& c, std::initializer_list<uint64_t> others = {1}) {
  const SelectedProblem x(c);
  const Results have = run(x, 0);
  expect_right(x, have, x.gradients());
  for (const uint64_t order : others)
    EXPECT_TRUE(run(x, order) == have) << c.name() << ": other bits in order " << order;
}

TEST(SelectedBackwardEmulated, AllDimsAndTypes) {
  for (const auto& d : kDims)
    for (const bool half : {false, true}) {
      expect_case({1, 130, 3, 1, d[0], d[1], half});
      SelectedCase blocks{1, 100, 2, 2, d[0], d[1], half};
      blocks.blocks = true;
      expect_case(blocks, {3});
    }
}

TEST(SelectedBackwardEmulated, AllOrdersHaveTheSameBits) {
  for (const auto& d : kDims) expect_case({1, 80, 4, 1, d[0], d[1]}, {1, 2, 3, 4, 5, 6, 7});
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
  for (const auto& d : kDims)
    for (const bool half : {false, true}) {
      SelectedCase c{2, 30, 3, 2, d[0], d[1], half, 5, 131};
      c.with_d_lse = true;
      expect_case(c, {});
    }
}

/// Whether rows of the tensors are the same.
template <typename V>
bool same_row(const std::vector<V>& a, const std::vector<V>& b, size_t row, int dim) {
  return std::equal(a.begin() + row * dim, a.begin() + (row + 1) * dim, b.begin() + row * dim);
}

/// What the formulas do not change keeps its bits. Counts rows that do and others.
void expect_kept(const std::vector<uint16_t>& have, const std::vector<uint16_t>& good,
                 const std::vector<double>& want, const std::vector<double>& want_good, int dim,
                 int& kept, int& changed) {
  for (size_t row = 0; row < want.size() / dim; ++row) {
    const bool keeps = same_row(want, want_good, row, dim);
    (keeps ? kept : changed) += 1;
    if (!keeps) continue;
    EXPECT_TRUE(same_row(have, good, row, dim)) << "row " << row;
  }
}

TEST(SelectedBackwardEmulated, WhatIsNotFiniteReachesWhoAttendsIt) {
  bool half = false;
  for (const auto& d : kDims) {
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

TEST(SelectedBackwardEmulated, InfiniteKeysAndValuesReachWhoAttendsThemOnly) {
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

/// Gradients of two other branches, the rotation of every token, and room between tokens.
struct Joined {
  static constexpr int kGap = 16;
  const SelectedCase& c;
  Numbers first, second;
  std::vector<float2> turns;
  std::vector<uint16_t> room;

  explicit Joined(const SelectedCase& of)
      : c(of),
        first(c.batch, c.s, c.heads(), c.dk, c.half),
        second(c.batch, c.s, c.heads(), c.dk, c.half),
        room(size_t(c.batch) * c.s * stride(), 0xffff) {
    first.draw(6, 1.f), second.draw(7, 1.f);
    for (int i = 0; i < c.s * c.dk / 2; ++i) {
      const float angle = 0.37f * float(i % 1009);
      turns.push_back(make_float2(std::cos(angle), std::sin(angle)));
    }
  }
  int row() const { return c.heads() * c.dk; }
  int stride() const { return row() + kGap; }

  JoinedQueries launched(bool turned) {
    return {{first.bits.data(), second.bits.data()},
            room.data(),
            stride(),
            turned ? turns.data() : nullptr};
  }
  std::vector<uint16_t> out() const {
    std::vector<uint16_t> rows;
    for (size_t t = 0; t < size_t(c.batch) * c.s; ++t)
      rows.insert(rows.end(), room.begin() + t * stride(), room.begin() + t * stride() + row());
    return rows;
  }
  bool gaps_are_untouched() const {
    for (size_t i = 0; i < room.size(); ++i)
      if (i % stride() >= size_t(row()) && room[i] != 0xffff) return false;
    return true;
  }
  std::vector<double> expected(std::vector<double> d_q, bool turned) const {
    const std::vector<double> a = first.values(), b = second.values();
    for (size_t i = 0; i < d_q.size(); ++i) d_q[i] += a[i] + b[i];
    for (size_t i = 0; turned && i < d_q.size(); i += 2) {
      const float2 turn = turns[i / row() % c.s * (c.dk / 2) + i % c.dk / 2];
      const double even = d_q[i], odd = d_q[i + 1];
      d_q[i] = even * turn.x + odd * turn.y, d_q[i + 1] = odd * turn.x - even * turn.y;
    }
    return d_q;
  }
};

TEST(SelectedBackwardEmulated, GradientsOfOtherBranchesJoinAndAreTurnedBack) {
  for (const auto& d : kDims)
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

TEST(SelectedBackwardEmulated, WhatJoinsMayLieInThePlaceOfATerm) {
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

TEST(SelectedBackwardEmulated, RowsWithMoreTilesThanPromisedAreNaN) {
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

/// The plan with fewer lanes or chunks of tokens a set, and items of 64 rows or a few more.
SelectedPlan cut_smaller(SelectedPlan p, const SelectedSizes& s, int lanes, int chunks) {
  const auto ceil_div = [](int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); };
  p.lanes_of_set = lanes, p.lane_sets = ceil_div(p.lanes, lanes);
  p.chunks_of_set = p.stripe_chunks = chunks, p.chunk_sets = ceil_div(p.chunks, chunks);
  p.pairs_of_item = ceil_div(70, s.group_size);
  p.items_of_lane =
      p.tiles + ceil_div(int64_t{p.tokens_of_set()} * p.max_tiles_of_row, p.pairs_of_item);
  size_t end = p.bytes;  // what changes its size lies behind the others
  const auto place = [&](size_t& offset, size_t bytes) {
    offset = end;
    end += (bytes + 255) / 256 * 256;
  };
  const size_t tile = size_t(kKeysOfTile) * (s.qk_head_dim + s.v_head_dim) * 4;
  place(p.items, size_t(p.sets()) * lanes * p.items_of_lane * sizeof(SelectedItem));
  place(p.first_item, size_t(p.sets()) * lanes * (p.tiles + 1) * 4);
  place(p.slots, size_t(lanes) * p.items_of_lane * tile);
  place(p.sums, size_t(lanes) * p.tiles * tile);
  p.bytes = end;
  return p;
}

/// The launcher's steps with another plan.
void run_sets(const SelectedBackward& p, const SelectedPlan& plan,
              sm80::SelectedBackwardLaunch products) {
  set_order(6);
  Workspace workspace(plan.bytes, '\xff');
  void* const at = workspace.begin();
  ASSERT_EQ(sm80::build_tile_index(sm80::token_ranges(p, p.num_queries), plan, at, nullptr),
            cudaSuccess);
  for (int set = 0; set < plan.sets(); ++set) {
    ASSERT_EQ(products(p, p.num_queries, plan, at, set, nullptr), cudaSuccess);
    ASSERT_EQ(sm80::sum_set(p, p.num_queries, {}, plan, at, set, nullptr), cudaSuccess);
  }
}

TEST(SelectedBackwardEmulated, SetsOfLanesAndOfTokens) {
  const SelectedCase c{2, 100, 3, 2, 64, 64};
  const SelectedProblem x(c);
  const SelectedGradients want = x.gradients();
  for (const auto& [lanes, chunks] : {std::pair(3, 4), std::pair(1, 4), std::pair(1, 1)}) {
    Results have;
    SelectedBackward p = problem_into(x, have);
    std::vector<float> stats(x.lse.size() * 2);
    ASSERT_EQ(sm80::row_stats(p, stats.data(), nullptr), cudaSuccess);
    p.stats = stats.data();
    const SelectedSizes sizes = selected_sizes(p, p.max_tiles_of_row, SelectedPass::kBackward);
    const SelectedPlan plan = cut_smaller(plan_selected(sizes), sizes, lanes, chunks);
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
}  // namespace nsa::device::emulator
