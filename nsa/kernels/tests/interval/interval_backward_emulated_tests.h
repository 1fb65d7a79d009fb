// Tests of the backward pass of interval attention in the emulator, against fp64, for the code that
// the including file has: it defines kCode and `under_test`, the namespace of its instantiations,
// in nsa::kernels::testing.
#pragma once
#include <gtest/gtest.h>

#include <limits>

#include "nsa/kernels/common/shared_bytes.h"
#include "nsa/kernels/interval/interval_bounds.h"
#include "nsa/kernels/interval/sm80/interval_backward_launch.h"
#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/emulator/order.h"
#include "nsa/kernels/tests/interval/interval_backward_problem.h"

namespace nsa::kernels::testing {
namespace {

/// What a launch left.
struct Result {
  std::vector<uint16_t> d_q, d_k, d_v;
  bool mended = false;
  bool operator==(const Result&) const = default;
};

/// lse and delta as a caller gives them.
struct GivenRows {
  std::vector<float> lse, delta;
  int bad = 0;

  explicit GivenRows(const Problem& p) : lse(p.rows(), NAN), delta(p.rows(), NAN) {
    const Sizes& z = p.z;
    p.for_each_row([&](int b, int t, int h, int begin, int end) {
      const size_t to =
          ((size_t(b) * z.kv_heads + h / z.group) * z.queries + t) * z.group + h % z.group;
      const size_t from = p.row(b, t, h);
      lse[to] = end > begin ? float(p.exact_lse[from] * 1.4426950408889634) : INFINITY;
      delta[to] = end > begin ? float(p.delta[from]) : 0.f;
    });
  }
};

/// Of a unit; in code of sm_90 a multiple of a tile's.
int chunk_tokens(const Sizes& z) {
  const int tile = sm90::row_tiling(z.group, sm90::rows_of_key_pass(z.dk)).tokens;
  return kCode == Code::kSm80 ? z.chunk_tokens : (z.chunk_tokens + tile - 1) / tile * tile;
}
cudaError_t launch_instance(const IntervalBackward& g, const sm90::BackwardPlan& plan) {
  const IntervalAttention& f = g.forward;
  const bool half = f.element == Element::kHalf;
  namespace code = under_test;
  if (f.qk_head_dim == 64)
    return (half ? code::backward_64_64_fp16 : code::backward_64_64_bf16)(g, plan, nullptr);
  if (f.qk_head_dim == 128)
    return (half ? code::backward_128_128_fp16 : code::backward_128_128_bf16)(g, plan, nullptr);
  if (f.qk_head_dim == 192)
    return (half ? code::backward_192_128_fp16 : code::backward_192_128_bf16)(g, plan, nullptr);
  return (half ? sm80::backward_256_256_fp16 : sm80::backward_256_256_bf16)(g, plan, nullptr);
}
cudaError_t launch(const IntervalBackward& g, const sm90::BackwardPlan& plan) {
  const cudaError_t status = launch_instance(g, plan);
  const IntervalAttention& f = g.forward;
  if (kCode == Code::kSm80) {  // what a card is asked for before the launch
    EXPECT_EQ(emulator::shared_bytes_of_launch(),
              sm80::shared_bytes_of(f.qk_head_dim, f.v_head_dim).interval_backward);
  }
  return status;
}

/// The launcher's work with chunks of the problem's number of tokens. Returns whether gradients
/// were repaired.
bool run_in_chunks(const Problem& p, const IntervalBackward& g) {
  const Sizes& z = p.z;
  GivenRows rows(p);
  sm90::BackwardPlan plan;
  plan.lse = rows.lse.data(), plan.delta = rows.delta.data(), plan.bad = &rows.bad;
  plan.chunk_tokens = chunk_tokens(z);
  for (int first = 0; first < z.keys; first += sm90::kKeysOfTile)
    plan.num_chunks =
        std::max(plan.num_chunks,
                 sm90::chunks_of(g.forward, first, std::min(first + sm90::kKeysOfTile, z.keys),
                                 plan.chunk_tokens));
  EXPECT_GT(plan.num_chunks, 1);
  std::vector<float> partials(
      size_t(plan.num_chunks) * z.batch * z.kv_heads * z.keys * (z.dk + z.dv), NAN);
  plan.partials = partials.data();
  if (!z.given_rows) {
    rows.bad = 77;
    std::fill(rows.lse.begin(), rows.lse.end(), NAN);
    std::fill(rows.delta.begin(), rows.delta.end(), NAN);
    EXPECT_EQ(portable::prepare_rows(g, plan, nullptr), cudaSuccess);
  }
  EXPECT_EQ(launch(g, plan), cudaSuccess);
  EXPECT_EQ(portable::finish_gradients(g, plan, nullptr), cudaSuccess);
  return rows.bad != 0;
}

bool run_launcher(const Problem& p, IntervalBackward g) {
  GivenRows rows(p);
  if (p.z.given_rows) g.rows = {rows.lse.data(), rows.delta.data(), &rows.bad};
  std::vector<float> workspace(workspace_bytes(g) / sizeof(float), NAN);
  EXPECT_EQ(workspace.size() > 2 * p.rows() + 16, p.z.partial_sums);
  g.workspace = workspace.data();
  EXPECT_EQ(interval_attention_backward(g, nullptr), cudaSuccess);
  if (p.z.given_rows) return rows.bad != 0;
  int bad;  // begins the workspace
  std::memcpy(&bad, workspace.data(), sizeof bad);
  return bad != 0;
}

Result unwritten(const Problem& p) {
  const Sizes& z = p.z;
  const size_t keys = size_t(z.batch) * z.keys * z.kv_heads;
  return {std::vector<uint16_t>(p.rows() * z.dk, 0xffff),
          std::vector<uint16_t>(keys * z.dk, 0xffff), std::vector<uint16_t>(keys * z.dv, 0xffff)};
}

/// As the launcher takes it but for `out`, `lse` and what it may be given.
IntervalBackward launched(const Problem& p, Result& result) {
  const Sizes& z = p.z;
  IntervalBackward g;
  IntervalAttention& f = g.forward;
  f.q = p.q.strided(), f.k = p.k.strided(), f.v = p.v.strided();
  f.batch = z.batch, f.num_queries = z.queries, f.num_keys = z.keys, f.num_heads = p.heads;
  f.num_kv_heads = z.kv_heads, f.qk_head_dim = z.dk, f.v_head_dim = z.dv;
  f.first_position = z.first_position, f.rule = z.rule, f.scale = float(p.scale());
  f.first_query = z.first_query;
  f.element = z.half ? Element::kHalf : Element::kBFloat16;
  f.code = kCode;
  g.d_out = p.d_out.strided();
  g.d_lse = z.d_lse ? p.d_lse.data() : nullptr;
  g.d_q = result.d_q.data(), g.d_k = result.d_k.data(), g.d_v = result.d_v.data();
  return g;
}

void set_machine(uint64_t order) {
  emulator::set_card(kCode == Code::kSm90 ? emulator::Card::kH100 : emulator::Card::kA100);
  emulator::set_order(order);
}

Result run(const Problem& p, uint64_t order) {
  const Sizes& z = p.z;
  Result result = unwritten(p);
  auto out = p.out.bits;
  auto lse = p.lse;
  IntervalBackward g = launched(p, result);
  g.forward.out = out.data(), g.forward.lse = lse.data();
  set_machine(order);
  result.mended = z.chunk_tokens > 0 ? run_in_chunks(p, g) : run_launcher(p, g);
  return result;
}

/// Finite where `want` is; the largest error within the bound of the GPU's test.
void compare(const Sizes& z, const char* what, const std::vector<uint16_t>& have,
             const std::vector<double>& want, bool all_finite) {
  double largest = 0, error = 0;
  size_t wrong_class = 0, finite = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double h = emulator::value_of(have[i], z.half);
    if (std::isfinite(want[i]) != std::isfinite(h)) ++wrong_class;
    if (!std::isfinite(want[i]) || !std::isfinite(h)) continue;
    ++finite;
    largest = std::max(largest, std::fabs(want[i]));
    error = std::max(error, std::fabs(want[i] - h));
  }
  const double bound = z.half ? 2e-3 : 1.2e-2, relative = largest > 1e-9 ? error / largest : error;
  EXPECT_EQ(wrong_class, 0u) << what << ": finite where it must not be, or not";
  EXPECT_GT(finite, 0u) << what;
  EXPECT_EQ(finite == want.size(), all_finite) << what;
  EXPECT_LE(relative, bound) << what << " of " << largest;
}

void check(const Sizes& z, const Poison& bad = {}, int orders = 2, bool mended = false) {
  SCOPED_TRACE(std::string(z.name) + " S" + std::to_string(z.queries) + " N" +
               std::to_string(z.keys) + " G" + std::to_string(z.group) + " " +
               std::to_string(z.dk) + "/" + std::to_string(z.dv) + " window " +
               std::to_string(z.rule.window) + (z.half ? " fp16" : " bf16"));
  const Problem p(z, bad);
  const Gradients want = gradients_of(p);
  const Result have = run(p, 0);
  const bool finite = bad.k < 0 && bad.v < 0 && bad.q < 0 && bad.d_out < 0;
  EXPECT_EQ(have.mended, mended || !finite);
  compare(z, "d_q", have.d_q, want.d_q, finite);
  compare(z, "d_k", have.d_k, want.d_k, finite);
  compare(z, "d_v", have.d_v, want.d_v, finite);
  for (int order = 1; order < orders && emulator::kOtherOrders; ++order)
    EXPECT_TRUE(run(p, order) == have) << order;
}

/// Gradients of two problems of the same rows, d_q of the second one added to that of the first.
void check_sum(const Sizes& first, const Sizes& second, const Poison& bad_first = {},
               const Poison& bad_second = {}) {
  SCOPED_TRACE(std::string(second.name) + " G" + std::to_string(second.group) + " " +
               std::to_string(second.dk) + (second.half ? " fp16" : " bf16"));
  const Problem a(first, bad_first), b(second, bad_second);
  Result of_a = unwritten(a), of_b = unwritten(b);
  GivenRows rows_a(a), rows_b(b);
  IntervalBackward of_first = launched(a, of_a), of_second = launched(b, of_b);
  of_first.rows = {rows_a.lse.data(), rows_a.delta.data(), &rows_a.bad};
  for (size_t i = 0; i < b.rows(); ++i)  // what is left out is not looked at
    if (int(i / second.group % second.queries) < second.first_query)
      rows_b.lse[i] = 0.f, rows_b.delta[i] = 3.f;
  of_second.rows = {rows_b.lse.data(), rows_b.delta.data(), &rows_b.bad};
  of_second.earlier = &of_first, of_second.d_q = of_first.d_q;
  set_machine(1);
  for (IntervalBackward* g : {&of_first, &of_second}) {
    std::vector<float> workspace(workspace_bytes(*g) / sizeof(float) + 1, NAN);
    g->workspace = workspace.data();
    ASSERT_EQ(interval_attention_backward(*g, nullptr), cudaSuccess);
  }
  Gradients want = gradients_of(b);
  const std::vector<double> before = gradients_of(a).d_q;
  for (size_t i = 0; i < before.size(); ++i) want.d_q[i] += before[i];
  const bool finite = bad_second.k < 0 && bad_second.v < 0;
  compare(second, "d_q", of_a.d_q, want.d_q, finite && bad_first.k < 0);
  if (second.keys == 0) return;
  compare(second, "d_k", of_b.d_k, want.d_k, finite);
  compare(second, "d_v", of_b.d_v, want.d_v, finite);
}

constexpr int kDims[3][2] = {{64, 64}, {128, 128}, {192, 128}};

/// Calls body(dk, dv, half) for every instantiation; for one type of each dims where instrumented
/// code takes several times as long: types differ in their arithmetic, not in what they read.
template <typename Body>
void for_each_instance(const Body& body) {
#ifdef __SANITIZE_ADDRESS__
  constexpr bool kAll = false;
#else
  constexpr bool kAll = true;
#endif
  for (const auto& [dk, dv] : kDims)
    for (const bool half : {false, true})
      if (kAll || half == (dk == 128)) body(dk, dv, half);
  if (kCode == Code::kSm80)
    for (const bool half : {false, true})
      if (kAll || half) body(256, 256, half);
}

TEST(IntervalBackward, WindowOfEveryGroup) {
  for_each_instance([](int dk, int dv, bool half) {
    for (const int group : {1, 2, 3, 4, 6, 8, 16, 64}) {
      const int queries = group < 8 ? 70 : group == 64 ? 5 : 20;
      check({"window", 1, queries, queries, group < 3 ? 2 : 1, group, dk, dv, 0, window(17), half,
             group % 3 == 0});
    }
  });
}

TEST(IntervalBackward, CompressedOfEveryGroup) {
  for_each_instance([](int dk, int dv, bool half) {
    for (const int group : {1, 2, 3, 4, 6, 8, 16, 64}) {
      const int queries = group < 8 ? 90 : group == 64 ? 6 : 30, extent = group < 8 ? 32 : 2;
      const IntervalRule rule = compressed(extent, extent / 2);
      check({"compressed", 1, queries, (queries - extent) / rule.stride + 1, group < 3 ? 2 : 1,
             group, dk, dv, 0, rule, half, group % 3 == 1});
    }
  });
}

// Lengths around the edges of tiles; several sequences, rows with gaps between them.
TEST(IntervalBackward, Lengths) {
  int i = 0;
  for (const int queries : {1, 63, 64, 65, 200})
    for (const int w : {1, 17, 512}) {
      const auto& [dk, dv] = kDims[++i % 3];
      check({"length", 2, queries, queries, 1, i % 2 + 1, dk, dv, 0, window(w), i % 4 < 2,
             i % 2 == 0, 8});
    }
  check({"shorter blocks", 2, 200, 96, 1, 2, 64, 64, 0, compressed(10, 2), false, true, 8});
  check({"blocks side by side", 1, 200, 25, 2, 2, 128, 128, 0, compressed(8, 8), true});
  check({"one block", 1, 40, 1, 2, 6, 192, 128, 0, compressed(32, 16), false, true});
  check({"group 67", 1, 3, 3, 1, 67, 64, 64, 0, window(2), false, true});
}

TEST(IntervalBackward, LaterQueries) {
  for_each_instance([](int dk, int dv, bool half) {
    check({"later", 1, 65, 200, 1, 2, dk, dv, 133, window(70), half, true, 16});
    check({"later blocks", 2, 33, 70, 1, 3, dk, dv, 1100, compressed(32, 16), half});
    check({"before its keys", 1, 20, 40, 1, 2, dk, dv, 0, window(9), half});
    check({"behind its keys", 1, 40, 30, 1, 2, dk, dv, 10, window(15), half});
  });
}

// Chunks of rows leave partial sums, some of them none.
TEST(IntervalBackward, PartialSums) {
  for_each_instance([](int dk, int dv, bool half) {
    check({"chunks", 2, 150, 150, 1, 1, dk, dv, 0, window(40), half, true, 0, 21});
    check({"chunks of blocks", 1, 140, 68, 2, 3, dk, dv, 0, compressed(4, 2), half, false, 0, 50});
  });
  // Few keys, many rows: the launcher's own plan has chunks.
  Sizes split{"split", 1, 40, 40, 1, 64, 128, 128, 0, window(25), false, true};
  split.partial_sums = true;
  check(split);
  check({"chunks later", 1, 70, 200, 1, 3, 64, 64, 130, window(90), false, false, 0, 10});
}

TEST(IntervalBackward, GivenRows) {
  check({"given", 2, 70, 70, 2, 2, 128, 128, 0, window(33), false, true, 0, 0, true});
  check({"given blocks", 1, 100, 5, 1, 6, 64, 64, 0, compressed(32, 16), true, true, 0, 30, true});
}

TEST(IntervalBackward, AddsToAnEarlierGradient) {
  for_each_instance([](int dk, int dv, bool half) {
    for (const int group : {1, 3, 16}) {
      const int queries = group == 16 ? 20 : 70;
      check_sum({"first", 2, queries, queries / 2 - 1, 1, group, dk, dv, 0, compressed(4, 2), half},
                {"added", 2, queries, queries, 1, group, dk, dv, 0, window(17), half});
    }
    // A key that is not finite spoils what its tile adds to rows that do not attend it.
    check_sum({"first", 1, 100, 49, 1, 2, dk, dv, 0, compressed(4, 2), half},
              {"bad keys", 1, 100, 100, 1, 2, dk, dv, 0, window(9), half}, {45, 47, -1, -1, NAN},
              {40, 70, -1, -1, INFINITY});
    check_sum({"first", 1, 20, 20, 1, 2, dk, dv, 0, window(9), half},
              {"no keys", 1, 20, 0, 1, 2, dk, dv, 0, compressed(32, 16), half});
  });
}

TEST(IntervalBackward, RefusesToAddToOtherRows) {
  const Problem p({"rows", 1, 20, 20, 1, 2, 64, 64, 0, window(9)});
  Result result = unwritten(p);
  IntervalBackward g = launched(p, result), earlier = g;
  g.earlier = &earlier;
  EXPECT_STREQ(unsupported_reason(g),
               "d_q is added to that of other rows, or of rows that are not given");
  GivenRows rows(p);
  earlier.rows = {rows.lse.data(), rows.delta.data(), &rows.bad};
  EXPECT_EQ(unsupported_reason(g), nullptr);
  earlier.forward.num_queries = 19;
  EXPECT_NE(unsupported_reason(g), nullptr);
  EXPECT_EQ(interval_attention_backward(g, nullptr), cudaErrorInvalidValue);
}

TEST(IntervalBackward, OrdersOfWarps) {
  check({"orders", 1, 100, 100, 1, 3, 192, 128, 0, window(50), false, true}, {}, 8);
  check({"orders", 1, 100, 49, 1, 3, 128, 128, 0, compressed(4, 2), true, true, 0, 30}, {}, 8);
  check({"orders", 1, 150, 150, 1, 2, 64, 64, 0, window(100), true}, {}, 8);
}

// What is not finite reaches the rows that attend its token, and the keys that these attend.
TEST(IntervalBackward, NotFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for_each_instance([](int dk, int dv, bool half) {
    for (const float value : {NAN, kInf}) {
      check({"bad keys", 2, 100, 100, 1, 2, dk, dv, 0, window(9), half, true},
            {40, 70, -1, -1, value});
      check({"bad rows", 1, 100, 100, 2, 2, dk, dv, 0, window(9), half}, {-1, -1, 30, 65, value});
    }
    check({"bad block", 1, 130, 64, 2, 2, dk, dv, 0, compressed(4, 2), half, false, 0, 30},
          {50, 60, -1, -1, NAN});
  });
}

// ds is beyond fp16, the gradients are not.
TEST(IntervalBackward, LargeGradients) {
  Sizes z{"large", 1, 40, 40, 1, 2, 64, 64, 0, window(9), true};
  z.qk_scale = .01f, z.v_scale = 300.f, z.d_out_scale = 300.f;
  check(z, {}, 2, true);
}

}  // namespace
}  // namespace nsa::kernels::testing
