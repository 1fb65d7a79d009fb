// The launcher of the selected branch's backward pass in the emulator, and what must hold of every
// run.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "nsa/kernels/selected/selected_plan.h"
#include "nsa/kernels/selected/selected_sums.h"
#include "nsa/kernels/selected/sm80/selected_backward_launch.h"
#include "nsa/kernels/selected/tile_index.h"
#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/emulator/order.h"
#include "nsa/kernels/tests/selected/selected_host_problem.h"

namespace nsa::kernels::emulator {

/// Instrumented code takes several times as long: fewer cases, and one type of each dims.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr int kDims[3][2] = {{64, 64}, {128, 128}, {192, 128}};
constexpr int kDimsOfSm80[4][2] = {{64, 64}, {128, 128}, {192, 128}, {256, 256}};

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

inline SelectedBackward problem_into(const SelectedProblem& x, Results& to) {
  SelectedBackward p = x.launched();
  to.q.assign(x.lse.size() * x.c.dk, 0xffff);
  const size_t keys = size_t(x.c.batch) * x.c.n() * x.c.kv_heads;
  to.k.assign(keys * x.c.dk, 0xffff);
  to.v.assign(keys * x.c.dv, 0xffff);
  p.d_q = to.q.data(), p.d_k = to.k.data(), p.d_v = to.v.data();
  return p;
}

inline void launch_with(const SelectedBackward& p, uint64_t order) {
  set_card(p.code == Code::kSm90 ? Card::kH100 : Card::kA100);
  set_order(order);
  ASSERT_EQ(unsupported_reason(p), nullptr) << unsupported_reason(p);
  Workspace workspace(workspace_bytes(p), order % 2 == 0 ? '\xff' : '\x3f');
  ASSERT_EQ(selected_attention_backward(p, workspace.begin(), nullptr), cudaSuccess);
}

inline Results run(const SelectedProblem& x, uint64_t order) {
  Results to;
  launch_with(problem_into(x, to), order);
  return to;
}

inline void expect_right(const SelectedProblem& x, const Results& have,
                         const SelectedGradients& want) {
  const bool half = x.c.half;
  const double bound = half ? 2e-3 : 1.5e-2;
  EXPECT_LE(distance(have.q, want.q, half), bound) << x.c.name() << ": d_q";
  EXPECT_LE(distance(have.k, want.k, half), bound) << x.c.name() << ": d_k";
  EXPECT_LE(distance(have.v, want.v, half), bound) << x.c.name() << ": d_v";
}

/// Right in the order of its number, and with the same bits in others.
inline void expect_case(const SelectedCase& c, const std::vector<uint64_t>& others = {1}) {
  const SelectedProblem x(c);
  const Results have = run(x, 0);
  expect_right(x, have, x.gradients());
  if (!kOtherOrders) return;
  for (const uint64_t order : others)
    EXPECT_TRUE(run(x, order) == have) << c.name() << ": other bits in order " << order;
}

/// Window and compressed branch of packed documents as ranges of keys, one a token, with statistics
/// as a gated sum leaves them: the documents do not begin with tiles, and some rows attend nothing.
inline void expect_documents(SelectedCase c, int window, int extent, int stride) {
  const std::vector<int> lengths = {0, 1, 3, 31, 40, 0, 70, 65};
  c.batch = 1, c.num_ranges = 1, c.s = std::accumulate(lengths.begin(), lengths.end(), 0);
  for (const bool compressed : {false, true}) {
    SCOPED_TRACE(c.name() + (compressed ? " compressed" : " window"));
    SelectedProblem x(c);
    int start = 0, most = 1;
    for (const int length : lengths) {
      for (int t = start; t < start + length; ++t)
        for (int head = 0; head < c.kv_heads; ++head) {
          int32_t* const range = x.ranges.data() + (size_t(t) * c.kv_heads + head) * 2;
          const int visible = t - start + 1 < extent ? 0 : (t - start + 1 - extent) / stride + 1;
          range[0] = compressed ? start / stride : std::max(start, t - window + 1);
          range[1] = compressed ? start / stride + visible : t + 1;
          if (range[1] > range[0]) most = std::max(most, (range[1] - 1) / 64 - range[0] / 64 + 1);
        }
      start += length;
    }
    x.run_forward();
    std::vector<float> stats;
    const std::vector<double> d_out = x.d_out.values(), out = x.out.values();
    for (size_t row = 0; row < x.lse.size(); ++row) {
      stats.push_back(std::isfinite(x.lse[row]) ? x.lse[row] * 1.4426950408889634f : NAN);
      stats.push_back(static_cast<float>(x.delta_of(row, d_out, out)));
    }
    Results first;
    for (const uint64_t order : {0, 3}) {
      Results have;
      SelectedBackward p = problem_into(x, have);
      p.stats = stats.data(), p.out = nullptr, p.lse = nullptr;
      p.max_tiles_of_row = most;
      launch_with(p, order);
      expect_right(x, have, x.gradients());
      if (order == 0) first = have;
      EXPECT_TRUE(have == first) << "other bits in order " << order;
    }
  }
}

/// Whether rows of the tensors are the same.
template <typename V>
bool same_row(const std::vector<V>& a, const std::vector<V>& b, size_t row, int dim) {
  return std::equal(a.begin() + row * dim, a.begin() + (row + 1) * dim, b.begin() + row * dim);
}

/// What the formulas do not change keeps its bits. Counts rows that do and others.
inline void expect_kept(const std::vector<uint16_t>& have, const std::vector<uint16_t>& good,
                        const std::vector<double>& want, const std::vector<double>& want_good,
                        int dim, int& kept, int& changed) {
  for (size_t row = 0; row < want.size() / dim; ++row) {
    const bool keeps = same_row(want, want_good, row, dim);
    (keeps ? kept : changed) += 1;
    if (!keeps) continue;
    EXPECT_TRUE(same_row(have, good, row, dim)) << "row " << row;
  }
}

/// Gradients of two other branches, the rotation of every token, and room between tokens.
struct Joined {
  static constexpr int kGap = 16;
  const SelectedCase& c;
  Numbers first, second;
  std::vector<float2> cos_sin;
  std::vector<uint16_t> room;

  explicit Joined(const SelectedCase& of)
      : c(of),
        first(c.batch, c.s, c.heads(), c.dk, c.half),
        second(c.batch, c.s, c.heads(), c.dk, c.half),
        room(size_t(c.batch) * c.s * stride(), 0xffff) {
    first.draw(6, 1.f), second.draw(7, 1.f);
    for (int i = 0; i < c.s * c.dk / 2; ++i) {
      const float angle = 0.37f * float(i % 1009);
      cos_sin.push_back(make_float2(std::cos(angle), std::sin(angle)));
    }
  }
  int row() const { return c.heads() * c.dk; }
  int stride() const { return row() + kGap; }

  JoinedQueries launched(bool turned) {
    return {{first.bits.data(), second.bits.data()},
            room.data(),
            stride(),
            turned ? cos_sin.data() : nullptr};
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
      const float2 angle = cos_sin[i / row() % c.s * (c.dk / 2) + i % c.dk / 2];
      const double even = d_q[i], odd = d_q[i + 1];
      d_q[i] = even * angle.x + odd * angle.y, d_q[i + 1] = odd * angle.x - even * angle.y;
    }
    return d_q;
  }
};

/// The plan with fewer heads or chunks of tokens a set, and items of 64 rows or a few more.
inline SelectedPlan cut_smaller(SelectedPlan p, const SelectedSizes& s, int heads, int chunks) {
  const auto ceil_div = [](int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); };
  p.heads_of_set = heads, p.head_sets = ceil_div(p.heads, heads);
  p.chunks_of_set = p.stripe_chunks = chunks, p.chunk_sets = ceil_div(p.chunks, chunks);
  p.pairs_of_item = ceil_div(70, s.group_size);
  p.items_of_head =
      p.tiles + ceil_div(int64_t{p.tokens_of_set()} * p.max_tiles_of_row, p.pairs_of_item);
  size_t end = p.bytes;  // what changes its size lies behind the others
  const auto place = [&](size_t& offset, size_t bytes) {
    offset = end;
    end += (bytes + 255) / 256 * 256;
  };
  const size_t tile = size_t(kKeysOfTile) * (s.qk_head_dim + s.v_head_dim) * 4;
  place(p.items, size_t(p.sets()) * heads * p.items_of_head * sizeof(SelectedItem));
  place(p.first_item, size_t(p.sets()) * heads * (p.tiles + 1) * 4);
  place(p.slots, size_t(heads) * p.items_of_head * tile);
  place(p.sums, size_t(heads) * p.tiles * tile);
  p.bytes = end;
  return p;
}

/// The launcher's steps with another plan.
inline void run_sets(const SelectedBackward& p, const SelectedPlan& plan,
                     sm80::SelectedBackwardLaunch products) {
  set_order(6);
  Workspace workspace(plan.bytes, '\xff');
  void* const at = workspace.begin();
  ASSERT_EQ(portable::build_tile_index(portable::token_ranges(p, p.num_queries), plan, at, nullptr),
            cudaSuccess);
  for (int set = 0; set < plan.sets(); ++set) {
    ASSERT_EQ(products(p, p.num_queries, plan, at, set, nullptr), cudaSuccess);
    ASSERT_EQ(portable::sum_set(p, p.num_queries, {}, plan, at, set, nullptr), cudaSuccess);
  }
}

}  // namespace nsa::kernels::emulator
