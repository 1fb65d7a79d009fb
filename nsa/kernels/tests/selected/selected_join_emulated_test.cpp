// The inverse index of the forward pass and the joining of its parts, in the emulator. The kernel
// between them is code of sm_90a; its parts are made on the host here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "nsa/kernels/selected/selected_join.cu"
#include "nsa/kernels/selected/tile_index.cu"
#include "nsa/kernels/tests/emulator/order.h"
#include "nsa/kernels/tests/selected/selected_host_problem.h"

namespace nsa::kernels::emulator {
namespace {

constexpr float kLog2OfE = 1.4426950408889634f;

/// What the launcher of the forward pass takes, with room for its results and intermediate ones.
struct Forward {
  const SelectedProblem& x;
  std::vector<uint16_t> out;
  std::vector<float> lse;
  RowAttention p;
  SelectedPlan plan;
  std::vector<char> bytes;

  Forward(const SelectedProblem& problem, int max_tiles)
      : x(problem), out(x.out.bits.size(), 0xffff), lse(x.lse.size(), NAN) {
    const SelectedBackward b = x.launched();
    p.q = b.q, p.k = b.k, p.v = b.v, p.ranges = b.ranges, p.out = out.data(), p.lse = lse.data();
    p.batch = b.batch, p.num_queries = b.num_queries, p.num_keys = b.num_keys;
    p.num_heads = b.num_heads, p.num_kv_heads = b.num_kv_heads, p.num_ranges = b.num_ranges;
    p.qk_head_dim = b.qk_head_dim, p.v_head_dim = b.v_head_dim;
    p.first_position = b.first_position, p.scale = b.scale, p.element = b.element;
    plan = plan_selected(selected_sizes(p, max_tiles, SelectedPass::kForward));
    bytes.assign(plan.bytes + 16, '\xff');
  }
  template <typename V>
  V* at(size_t offset) {
    return reinterpret_cast<V*>(bytes.data() + offset);
  }
  void build_index(bool without_dense_tiles = false) {
    const portable::TokenRanges ranges =
        portable::token_ranges(p, p.num_queries, without_dense_tiles);
    ASSERT_EQ(portable::build_tile_index(ranges, plan, bytes.data(), nullptr), cudaSuccess);
  }
  void join() {
    ASSERT_EQ(plan.sets(), 1);
    ASSERT_EQ(portable::join_parts(p, p.num_queries, plan, bytes.data(), 0, nullptr), cudaSuccess);
  }

  /// Part of a row's output: keys of `mask` in a tile.
  void make_part(int b, int t, int kv, int g, int place, int tile, uint64_t mask) {
    const int head = kv * x.c.group + g, head_index = b * x.c.kv_heads + kv;
    std::vector<double> logits(64, -INFINITY), o(x.c.dv);
    for (int i = 0; i < 64; ++i) {
      if (!(mask >> i & 1)) continue;
      logits[i] = 0;
      for (int c = 0; c < x.c.dk; ++c)
        logits[i] += x.q.at(b, t, head, c) * x.k.at(b, tile * 64 + i, kv, c);
    }
    const double peak = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (int i = 0; i < 64; ++i) {
      if (!(mask >> i & 1)) continue;
      const double weight = std::exp2((logits[i] - peak) * p.scale * kLog2OfE);
      sum += weight;
      for (int c = 0; c < x.c.dv; ++c) o[c] += weight * x.v.at(b, tile * 64 + i, kv, c);
    }
    const uint32_t row =
        ((uint32_t(head_index) * plan.tokens_of_set() + t) * plan.max_tiles_of_row + place) *
            x.c.group +
        g;
    at<float2>(plan.part_stats)[row] = make_float2(float(peak), float(sum));
    auto* const parts = at<uint16_t>(plan.parts) + size_t(portable::first_of_part(row, x.c.dv)) * 8;
    for (int c = 0; c < x.c.dv;
         ++c)  // of 32 columns, thread q of a quad has 8 j + 2 q and the next
      parts[c / 32 * 32 * 8 + c % 8 / 2 * 8 + c % 32 / 8 * 2 + c % 2] =
          bits_of(float(o[c]), x.c.half);
  }
  void make_parts() {
    for (int b = 0; b < x.c.batch; ++b)
      for (int t = 0; t < x.c.s; ++t)
        for (int kv = 0; kv < x.c.kv_heads; ++kv) {
          const int64_t row = (int64_t(b) * x.c.s + t) * x.c.kv_heads + kv;
          for (int place = 0; place < at<int32_t>(plan.row_counts)[row]; ++place) {
            const int64_t i = row * plan.max_tiles_of_row + place;
            for (int g = 0; g < x.c.group; ++g)
              make_part(b, t, kv, g, place, at<int32_t>(plan.row_tiles)[i] / 2,
                        at<uint64_t>(plan.row_masks)[i]);
          }
        }
  }
};

TEST(SelectedJoinEmulated, PartsOfTheIndexGiveTheRows) {
  for (const int dv : {64, 128})
    for (const bool half : {false, true})
      for (const int group : {1, 3, 16}) {
        SelectedCase c{2, 70, group, 2, 64, dv, half, 4, group == 3 ? 131 : 0};
        c.blocks = group == 16;
        const SelectedProblem x(c);
        for (const uint64_t order : {0, 3}) {
          set_order(order);
          Forward f(x, (c.n() + 63) / 64);
          f.build_index();
          f.make_parts();
          f.join();
          EXPECT_LE(distance(f.out, x.out.values(), half), half ? 2e-3 : 1.5e-2) << c.name();
          for (size_t row = 0; row < f.lse.size(); ++row)
            EXPECT_TRUE(f.lse[row] == x.lse[row] ||
                        std::fabs(f.lse[row] - x.lse[row]) <=
                            1e-5f * std::fmax(1.f, std::fabs(x.lse[row])))
                << c.name() << " row " << row << ": " << f.lse[row] << ", not " << x.lse[row];
        }
      }
}

/// Tiles that a token's keys meet, ascending.
std::vector<int> tiles_of(const std::vector<int>& keys) {
  std::vector<int> tiles;
  for (const int key : keys)
    if (tiles.empty() || tiles.back() != key / 64) tiles.push_back(key / 64);
  return tiles;
}

/// The lists of a (sequence, KV head): entries ascend by token and name their rows' tiles and keys.
/// Returns their length.
int64_t expect_lists(Forward& f, int b, int kv) {
  const SelectedPlan& plan = f.plan;
  const SelectedCase& c = f.x.c;
  const int64_t head_index = b * c.kv_heads + kv;
  const uint32_t* entries = f.at<uint32_t>(plan.entries) + head_index * c.s * plan.max_tiles_of_row;
  const int32_t* offsets =
      f.at<int32_t>(plan.offsets) + head_index * (plan.chunks + 1) * plan.tiles;
  int64_t listed = 0;
  for (int tile = 0; tile < plan.tiles; ++tile) {
    const int begin = offsets[tile], end = offsets[plan.chunks * plan.tiles + tile];
    listed += end - begin;
    for (int i = begin; i < end; ++i) {
      const int token = entries[i] >> 8, place = entries[i] & 127;
      if (i > begin) {
        EXPECT_LT(entries[i - 1] >> 8, entries[i] >> 8);
      }
      const int64_t at =
          ((int64_t(b) * c.s + token) * c.kv_heads + kv) * plan.max_tiles_of_row + place;
      EXPECT_EQ(f.at<int32_t>(plan.row_tiles)[at] / 2, tile);
      uint64_t mask = 0;
      for (const int key : f.x.keys_of(b, token, kv))
        if (key / 64 == tile) mask |= 1ull << key % 64;
      EXPECT_EQ(f.at<uint64_t>(plan.row_masks)[at], mask);
      EXPECT_EQ((entries[i] & 128) != 0, mask == ~0ull);
    }
  }
  return listed;
}

TEST(SelectedJoinEmulated, IndexListsEveryAttendedTileOnce) {
  for (const bool without_dense_tiles : {false, true}) {
    const SelectedProblem x({2, 150, 2, 2, 64, 64, false, 5, 300});
    set_order(3);
    Forward f(x, 8);
    f.build_index(without_dense_tiles);
    int64_t listed = 0, wanted = 0;
    for (int b = 0; b < x.c.batch; ++b)
      for (int kv = 0; kv < x.c.kv_heads; ++kv) {
        listed += expect_lists(f, b, kv);
        for (int t = 0; t < x.c.s; ++t)
          for (const int tile : tiles_of(x.keys_of(b, t, kv)))
            wanted += !without_dense_tiles ||
                      (tile > 0 && tile < first_dense_tile(x.c.first_position + t));
      }
    EXPECT_GT(wanted, 0);
    EXPECT_EQ(listed, wanted);
  }
}

TEST(SelectedJoinEmulated, RowsBeyondMaxTilesAreNaN) {
  const SelectedProblem x({1, 200, 2, 1, 64, 64});
  set_order(1);
  Forward f(x, 2);
  f.build_index();
  f.make_parts();
  f.join();
  int broken = 0;
  x.for_rows([&](int b, int t, int head, int, const std::vector<int>& keys) {
    const std::vector<int> tiles = tiles_of(keys);
    const size_t row = x.row_of(b, t, head);
    broken += tiles.size() > 2;
    EXPECT_EQ(std::isnan(f.lse[row]), tiles.size() > 2);
    for (int i = 0; i < x.c.dv; ++i)
      EXPECT_EQ(std::isnan(value_of(f.out[row * x.c.dv + i], x.c.half)), tiles.size() > 2);
  });
  EXPECT_GT(broken, 0);
}

}  // namespace
}  // namespace nsa::kernels::emulator
