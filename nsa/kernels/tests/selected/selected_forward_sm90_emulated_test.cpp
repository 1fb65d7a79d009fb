// The forward pass of the selected branch by code of sm_90, as its launcher runs it, in the
// emulator: index, products, joins and whole tiles against plain fp64 loops, and the same bits in
// every order.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "nsa/kernels/selected/selected_forward.h"
#include "nsa/kernels/selected/selected_join.h"
#include "nsa/kernels/selected/sm90/selected_dense_launch.h"
#include "nsa/kernels/selected/sm90/selected_forward_launch.h"
#include "nsa/kernels/tests/selected/selected_emulated_runs.h"

namespace nsa::kernels::emulator {
namespace {

struct Output {
  std::vector<uint16_t> out;
  std::vector<uint32_t> lse;  // bits

  explicit Output(const SelectedProblem& x)
      : out(x.out.bits.size(), 0xffff), lse(x.lse.size(), ~0u) {}
  bool operator==(const Output&) const = default;
  double lse_of(size_t row) const { return double(std::bit_cast<float>(lse[row])); }
};

RowAttention problem_into(const SelectedProblem& x, Output& to) {
  const SelectedBackward b = x.launched();
  RowAttention p;
  p.q = b.q, p.k = b.k, p.v = b.v, p.ranges = b.ranges, p.out = to.out.data();
  p.lse = reinterpret_cast<float*>(to.lse.data());
  p.batch = b.batch, p.num_queries = b.num_queries, p.num_keys = b.num_keys;
  p.num_heads = b.num_heads, p.num_kv_heads = b.num_kv_heads, p.num_ranges = b.num_ranges;
  p.qk_head_dim = b.qk_head_dim, p.v_head_dim = b.v_head_dim, p.block_size = b.block_size;
  p.first_position = b.first_position, p.scale = b.scale, p.element = b.element;
  return p;
}

/// What the pass is asked for: its first `dense` queries in whole tiles.
struct Way {
  int dense = 0, max_tiles = 0;  // 0: as many as there are
};

Output run(const SelectedProblem& x, const Way& way, uint64_t order) {
  set_card(Card::kH100);
  set_order(order);
  Output to(x);
  const RowAttention p = problem_into(x, to);
  const int tiles = way.max_tiles == 0 ? (x.c.n() + 63) / 64 : way.max_tiles;
  EXPECT_EQ(unsupported_by_keys(p, tiles), nullptr);
  Workspace workspace(workspace_bytes(p, tiles, way.dense), order % 2 == 0 ? '\xff' : '\x3f');
  EXPECT_EQ(selected_attention_forward(p, tiles, way.dense, workspace.begin(), nullptr,
                                       WholeTiles::kOneOfCta),
            cudaSuccess);
  return to;
}

void expect_right(const SelectedProblem& x, const Output& have) {
  EXPECT_LE(distance(have.out, x.out.values(), x.c.half), x.c.half ? 2e-3 : 1.5e-2);
  for (size_t row = 0; row < x.lse.size(); ++row) {
    const double h = have.lse_of(row), w = double(x.lse[row]);
    ASSERT_TRUE(h == w || (std::isnan(h) && std::isnan(w)) || std::fabs(h - w) <= 1e-5)
        << "lse of row " << row << " is " << h << ", not " << w;
  }
}

/// Correct in order 0, and with the same bits in others; all queries in the order of keys and,
/// where they attend blocks, all and some in whole tiles.
void expect_ways(const SelectedCase& c, std::vector<uint64_t> others = {1, 2}) {
  if (kSanitized) others.clear();  // other builds compare bits
  const SelectedProblem x(c);
  for (const int dense : {0, std::max(c.s * 3 / 5, 1), c.s}) {
    if (dense > 0 && !c.blocks) break;
    if (kSanitized && c.blocks && (dense == 0 || dense == c.s) && c.s > 1) continue;
    SCOPED_TRACE(c.name() + ", " + std::to_string(dense) + " dense");
    const Output have = run(x, {dense}, 0);
    expect_right(x, have);
    for (const uint64_t order : others)
      EXPECT_TRUE(run(x, {dense}, order) == have) << "other bits in order " << order;
  }
}

/// Whether cases of these dims are of fp16.
bool half_at(int qk_head_dim) { return qk_head_dim == 128 && !kSanitized; }

SelectedCase blocks(SelectedCase c) {
  c.blocks = true;
  return c;
}

TEST(SelectedForwardSm90, AnyRanges) {
  for (const auto& d : kDims) expect_ways({1, 130, 3, 1, d[0], d[1]});
  expect_ways({1, 100, 4, 2, 128, 128, half_at(128)});
}

TEST(SelectedForwardSm90, BlocksOfAllGroups) {
  for (const auto& d : kDims)
    for (const int group : {1, 4, 6, 16})
      expect_ways(blocks({1, 260, group, 1, d[0], d[1], group == 4 && half_at(d[0]), 4}), {1});
}

TEST(SelectedForwardSm90, OtherGroups) {
  for (const int group : {2, 3, 5, 8, 12}) {
    expect_ways({1, 70, group, 1, 128, 128, half_at(128)}, {2});
    for (const auto& d : kDims) expect_ways(blocks({1, 200, group, 1, d[0], d[1]}), {3});
  }
}

TEST(SelectedForwardSm90, AllOrdersHaveTheSameBits) {
  for (const auto& d : kDims) {
    expect_ways(blocks({1, 200, 4, 1, d[0], d[1], false, 4}), {1, 2, 3, 4, 5, 6, 7});
    // Several items a CTA.
    expect_ways({2, 100, 3, 2, d[0], d[1], false, 2}, {1, 2, 3, 4, 5, 6, 7});
  }
}

TEST(SelectedForwardSm90, LengthsAroundTiles) {
  for (const auto& d : kDims)
    for (const int s : {1, 63, 64, 65, 129}) {
      expect_ways({1, s, 2, 2, d[0], d[1]}, {4});
      expect_ways(blocks({1, s, 6, 2, d[0], d[1]}), {5});
    }
}

TEST(SelectedForwardSm90, LaterPositionsBatchesAndStrides) {
  for (const auto& d : kDims) {
    SelectedCase c{2, 71, 6, 2, d[0], d[1], half_at(d[0]), 5, 131};
    c.with_d_lse = true;  // rows apart from each other
    expect_ways(c, {3});
    expect_ways(blocks(c), {6});
  }
}

TEST(SelectedForwardSm90, HighestTileOfAWord) {
  expect_ways(blocks({1, 40, 16, 1, 192, 128, false, 16, 4096 - 40}), {});
  expect_ways(blocks({1, 40, 16, 1, 64, 64, false, 16, 4096 - 40}), {});
}

/// Infinite values of two keys, one of them a key that most rows attend.
void make_infinite(SelectedProblem& x) {
  x.v.set(0, x.c.n() / 3, 0, 5, -INFINITY);
  x.v.set(0, 7, 0, 9, INFINITY);
  x.run_forward();
}

/// Rows whose results the formulas do not change keep their bits. Counts them and others.
void expect_kept(const SelectedProblem& x, const SelectedProblem& clean, const Output& have,
                 const Output& good, int& kept, int& changed) {
  const int dv = x.c.dv;
  for (size_t row = 0; row < x.lse.size(); ++row) {
    const auto same = [&](const auto& a, const auto& b) {
      return std::equal(a.begin() + row * dv, a.begin() + (row + 1) * dv, b.begin() + row * dv);
    };
    const bool keeps = same(x.out.bits, clean.out.bits) && x.lse[row] == clean.lse[row];
    (keeps ? kept : changed) += 1;
    if (!keeps) continue;
    EXPECT_TRUE(same(have.out, good.out) && have.lse[row] == good.lse[row]) << "row " << row;
  }
}

void expect_spoiled(SelectedCase c, int dense) {
  const SelectedProblem clean(c);
  const Output good = run(clean, {dense}, 0);
  for (const int bad : {5, 8, 16}) {
    if (kSanitized && bad != 8) continue;
    c.bad = bad == 16 ? 0 : bad;
    SelectedProblem spoiled(c);
    if (bad == 16) make_infinite(spoiled);
    SCOPED_TRACE(c.name() + ", " + std::to_string(dense) + " dense");
    const Output have = run(spoiled, {dense}, 0);
    expect_right(spoiled, have);
    int kept = 0, changed = 0;
    expect_kept(spoiled, clean, have, good, kept, changed);
    EXPECT_GT(kept, 0);
    EXPECT_GT(changed, 0);
    EXPECT_TRUE(run(spoiled, {dense}, 3) == have);
  }
}

TEST(SelectedForwardSm90, NonFiniteValuesReachOnlyRowsThatAttendThem) {
  for (const auto& d : kDims) {
    expect_spoiled({1, 100, 2, 2, d[0], d[1], false, 4}, 0);
    const SelectedCase c = blocks({1, 299, 4, 1, d[0], d[1], half_at(d[0]), 3});
    for (const int dense : {0, 190, 299}) expect_spoiled(c, dense);
    expect_spoiled(blocks({1, 270, 6, 2, d[0], d[1], false, 3}), 100);
  }
}

/// Rows that the launch must not compute are NaN, the others right; there are some of each.
void expect_broken(
    const SelectedProblem& x, const Output& have,
    const std::function<bool(const std::vector<int>& keys, int b, int t, int kv)>& is_broken) {
  Numbers want = x.out;
  int broken = 0, whole = 0;
  x.for_rows([&](int b, int t, int head, int kv, const std::vector<int>& keys) {
    const bool expected = is_broken(keys, b, t, kv);
    (expected ? broken : whole) += 1;
    const size_t row = x.row_of(b, t, head);
    EXPECT_EQ(std::isnan(have.lse_of(row)), expected) << "row " << row;
    for (int i = 0; i < x.c.dv && expected; ++i) want.set(b, t, head, i, NAN);
  });
  EXPECT_GT(broken, 0);
  EXPECT_GT(whole, 0);
  EXPECT_LE(distance(have.out, want.values(), want.half), 1.5e-2);
}

TEST(SelectedForwardSm90, RowsBeyondMaxTilesAreNaN) {
  for (const auto& d : kDims)
    for (const bool with_blocks : {false, true}) {
      SelectedCase c{1, 420, 2, 1, d[0], d[1], false, 7};
      c.blocks = with_blocks;
      const SelectedProblem x(c);
      expect_broken(x, run(x, {0, 2}, 1), [&](const std::vector<int>& keys, int, int t, int) {
        std::vector<int> tiles;  // that are listed
        for (const int key : keys)
          if ((tiles.empty() || tiles.back() != key / 64) &&
              (!with_blocks || (key / 64 > 0 && key / 64 < first_dense_tile(t))))
            tiles.push_back(key / 64);
        return tiles.size() > 2;
      });
    }
}

TEST(SelectedForwardSm90, RangesThatAreNoBlocksAreNaN) {
  for (const auto& d : kDims) {
    SelectedProblem x({1, 200, 4, 1, d[0], d[1], false, 1});
    x.c.blocks = true;  // which they are not
    for (int t = 0; t < x.c.s; ++t) {
      x.ranges[2 * t] = t % 5 == 0 ? 64 : 0;
      x.ranges[2 * t + 1] = t % 3 == 0 ? t + 1 : std::min(t + 1, t % 7 == 0 ? 40 : 128);
    }
    x.run_forward();
    for (const int dense : {120, 200})
      expect_broken(x, run(x, {dense}, 2), [&](const std::vector<int>&, int, int t, int) {
        const int begin = x.ranges[2 * t], end = x.ranges[2 * t + 1];
        return begin < end && end != t + 1 && end % 64 != 0;
      });
  }
}

struct Launches {
  int dim;
  sm90::SelectedForwardLaunch products;
  sm90::SelectedDenseLaunch whole_tiles;
};

/// The launcher's steps with another plan.
void run_sets(const RowAttention& p, const SelectedPlan& plan, const Launches& launches) {
  set_card(Card::kH100);
  set_order(6);
  Workspace workspace(plan.bytes, '\xff');
  char* const at = static_cast<char*>(workspace.begin());
  const bool dense = p.block_size > 0;
  ASSERT_EQ(portable::build_tile_index(portable::token_ranges(p, p.num_queries, dense), plan, at,
                                       nullptr),
            cudaSuccess);
  for (int set = 0; set < plan.sets(); ++set) {
    ASSERT_EQ(launches.products(p, plan, at, set, nullptr), cudaSuccess);
    if (!dense) {
      ASSERT_EQ(portable::join_parts(p, p.num_queries, plan, at, set, nullptr), cudaSuccess);
      continue;
    }
    sm90::DenseQueries q;
    q.first_head = set / plan.chunk_sets * plan.heads_of_set;
    q.heads = std::min(plan.heads_of_set, plan.heads - q.first_head);
    q.first = set % plan.chunk_sets * plan.tokens_of_set();
    q.count = std::min(plan.tokens_of_set(), p.num_queries - q.first);
    q.tokens_of_batch = p.num_queries;
    q.parts = {at + plan.parts, reinterpret_cast<const float2*>(at + plan.part_stats),
               reinterpret_cast<const int32_t*>(at + plan.row_counts), plan.max_tiles_of_row,
               plan.tokens_of_set()};
    ASSERT_EQ(launches.whole_tiles(p, q, nullptr), cudaSuccess);
  }
}

TEST(SelectedForwardSm90, SetsOfHeadsAndOfTokens) {
  const Launches all[] = {
      {64, sm90::selected_forward_64_64_bf16, sm90::selected_dense_64_64_bf16},
      {128, sm90::selected_forward_128_128_bf16, sm90::selected_dense_128_128_bf16}};
  for (const Launches& launches : all)
    for (const bool with_blocks : {false, true}) {
      SelectedCase c{2, 100, 4, 2, launches.dim, launches.dim, false, 5, 200};
      c.blocks = with_blocks;
      const SelectedProblem x(c);
      for (const auto& [heads, chunks] : {std::pair(3, 4), std::pair(1, 4), std::pair(1, 1)}) {
        Output have(x);
        const RowAttention p = problem_into(x, have);
        const SelectedSizes sizes = selected_sizes(p, (c.n() + 63) / 64, SelectedPass::kForward);
        run_sets(p, cut_smaller(plan_selected(sizes), sizes, heads, chunks), launches);
        expect_right(x, have);
      }
    }
}

}  // namespace
}  // namespace nsa::kernels::emulator
