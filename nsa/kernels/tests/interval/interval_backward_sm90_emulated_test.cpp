// The backward pass of interval attention as sm_90 code, run on the CPU and judged by fp64.
#include "nsa/kernels/interval/interval_rows.cu"
#include "nsa/kernels/interval/sm90/instances/interval_backward_128_128_bf16.cu"
#include "nsa/kernels/interval/sm90/instances/interval_backward_128_128_fp16.cu"
#include "nsa/kernels/interval/sm90/instances/interval_backward_192_128_bf16.cu"
#include "nsa/kernels/interval/sm90/instances/interval_backward_192_128_fp16.cu"
#include "nsa/kernels/interval/sm90/instances/interval_backward_64_64_bf16.cu"
#include "nsa/kernels/interval/sm90/instances/interval_backward_64_64_fp16.cu"

// The launcher's other code is not there.
namespace nsa::kernels {
const char* unsupported_reason(const IntervalAttention&) { return nullptr; }
namespace sm80 {
#define NSA_ABSENT(name)                                                         \
  cudaError_t name(const IntervalBackward&, const BackwardPlan&, cudaStream_t) { \
    return cudaErrorNotSupported;                                                \
  }
NSA_ABSENT(backward_64_64_bf16)
NSA_ABSENT(backward_64_64_fp16)
NSA_ABSENT(backward_128_128_bf16)
NSA_ABSENT(backward_128_128_fp16)
NSA_ABSENT(backward_192_128_bf16)
NSA_ABSENT(backward_192_128_fp16)
NSA_ABSENT(backward_256_256_bf16)
NSA_ABSENT(backward_256_256_fp16)
#undef NSA_ABSENT
}  // namespace sm80
}  // namespace nsa::kernels

namespace nsa::kernels::testing {
constexpr Code kCode = Code::kSm90;
namespace under_test = sm90;
}  // namespace nsa::kernels::testing
#include "nsa/kernels/tests/interval/interval_backward_emulated_tests.h"

// What only this code has: rings that come round, several tiles of rows a CTA, short last steps.
namespace nsa::kernels::testing {
namespace {

/// Whether case i is run: every fourth where instrumented code takes several times as long.
bool taken(int i) {
#ifdef __SANITIZE_ADDRESS__
  return i % 4 == 1;
#else
  return i > 0;
#endif
}

/// The launcher's plan has partial sums where the keys of a tile have `tokens` tokens, if these are
/// more than 16 tiles of rows.
Sizes planned(Sizes z, int tokens) {
  z.partial_sums = tokens > 16 * (sm90::rows_of_key_pass(z.dk) / z.group);
  return z;
}

// 300 keys are three tiles, the last one short; their rows come round the ring of tiles. A tile of
// rows of six heads has places that stay unused.
TEST(IntervalBackwardSm90, ManyTilesOfWindow) {
  int i = 0;
  for (const int group : {1, 4, 6, 16})
    for (const auto& [dk, dv] : kDims) {
      if (!taken(++i)) continue;
      const int w = i % 2 ? 170 : 33, queries = group == 1 ? 300 : group == 16 ? 90 : 150;
      check(planned(
          {"window", 1, queries, queries, 1, group, dk, dv, 0, window(w), i % 5 == 2, group == 4},
          std::min(queries, 127 + w)));
    }
}

TEST(IntervalBackwardSm90, ManyTilesOfBlocks) {
  int i = 0;
  for (const int group : {1, 4, 6, 16})
    for (const auto& [dk, dv] : kDims) {
      if (!taken(++i)) continue;
      const IntervalRule rule = i % 2 ? compressed(32, 16) : compressed(4, 1);
      const int queries = group == 1 ? 560 : 140, keys = (queries - rule.extent) / rule.stride + 1;
      check(planned(
          {"compressed", 1, queries, keys, 1, group, dk, dv, 0, rule, i % 5 == 2, group == 6},
          queries - rule.extent + 1));
    }
}

// d_q passes by two to five steps of keys, the last of them whole, short or of one key.
TEST(IntervalBackwardSm90, StepsOfQueries) {
  int i = 0;
  for (const int w : {129, 161, 162, 250, 400})
    for (const auto& [dk, dv] : kDims) {
      if (!taken(++i)) continue;
      const int keys = 128 + w + i % 4 * 9;
      check({"steps", 1, 128, keys, 1, 1, dk, dv, keys - 128, window(w), i % 2 == 0});
    }
}

// A group of 65 leaves room for one token in a tile of d_q: so many tiles that a CTA computes two,
// one after the other.
TEST(IntervalBackwardSm90, SeveralTilesOfRows) {
  const Sizes z = planned({"many tiles", 1, 680, 680, 1, 65, 64, 64, 0, window(20), true}, 147);
  ASSERT_EQ(sm90::tiles_of_unit(z.queries, z.batch * z.kv_heads), 2);
  check(z);
}

// The first 31 tokens attend no block: a CTA of theirs gives the rows of its first tile back
// without having read them, and may not do so before all its lanes have seen them.
TEST(IntervalBackwardSm90, SeveralTilesWithoutKeys) {
  const Sizes z =
      planned({"no keys", 1, 680, 41, 1, 65, 64, 64, 0, compressed(32, 16), true}, 680 - 31);
  ASSERT_EQ(sm90::tiles_of_unit(z.queries, z.batch * z.kv_heads), 2);
  check(z);
}

// A sequence shorter than a compression block has no compressed key.
TEST(IntervalBackwardSm90, NoKeys) {
  IntervalBackward p;
  p.forward.batch = 2, p.forward.num_queries = 20, p.forward.num_keys = 0;
  p.forward.num_heads = 8, p.forward.num_kv_heads = 2;
  p.forward.qk_head_dim = p.forward.v_head_dim = 64;
  p.forward.rule = compressed(32, 16);
  EXPECT_GT(workspace_bytes(p), 0U);
  sm90::BackwardPlan plan;
  sm90::choose_chunks(p.forward, plan);
  EXPECT_EQ(plan.num_chunks, 1);
}

TEST(IntervalBackwardSm90, WideGroups) {
  for (const auto& [dk, dv] : kDims)
    check({"group 128", 1, 5, 70, 2, 128, dk, dv, 65, window(60), dk == 128, true});
}

TEST(IntervalBackwardSm90, NoPair) {
  for_each_instance([](int dk, int dv, bool half) {
    check({"no pair", 2, 30, 40, 1, 2, dk, dv, 0, compressed(32, 16), half, true});
  });
}

TEST(IntervalBackwardSm90, GivenRows) {
  for_each_instance([](int dk, int dv, bool half) {
    check({"given", 2, 90, 90, 1, 6, dk, dv, 0, window(33), half, true, 8, 0, true});
  });
}

/// The first queries keep the gradient of the other branch and give none to keys.
TEST(IntervalBackwardSm90, LeavesFirstQueriesOut) {
  for (const auto& [dk, dv] : kDims)
    for (const int first_query : {1, 50, 99}) {
      Sizes later{"later", 2, 100, 100, 2, 4, dk, dv, 0, window(30), dk == 128};
      later.first_query = first_query;
      const Sizes first{"first", 2, 100, 49, 2, 4, dk, dv, 0, compressed(4, 2), dk == 128};
      check_sum(first, later);
      check_sum(first, later, {}, {70, 80, -1, -1, NAN});
    }
}

TEST(IntervalBackwardSm90, OnlyAddedGradientsLeaveQueriesOut) {
  const Problem p({"rows", 1, 20, 20, 1, 2, 64, 64, 0, window(9)});
  Result result = unwritten(p);
  IntervalBackward g = launched(p, result);
  g.forward.first_query = 5;
  EXPECT_STREQ(unsupported_reason(g),
               "queries are left out of what is added to another branch by code of sm_90 only");
}

TEST(IntervalBackwardSm90, OrdersOfWarps) {
  check(planned({"orders", 1, 90, 90, 1, 16, 192, 128, 0, window(50), false, true}, 90), {}, 8);
  check({"orders", 1, 150, 150, 1, 4, 64, 64, 0, window(100), true}, {}, 8);
}

// What is not finite, in chunks whose partial sums are not, and in tiles without masks.
TEST(IntervalBackwardSm90, NotFinite) {
  for (const auto& [dk, dv] : kDims) {
    check({"bad d_out", 1, 90, 90, 1, 6, dk, dv, 0, window(20), dk == 64},
          {-1, -1, -1, 50, -INFINITY});
    check({"bad rows in chunks", 1, 150, 150, 1, 4, dk, dv, 0, window(40), dk == 128, true, 0, 32},
          {-1, -1, 70, 90, NAN});
    check({"bad last key", 1, 70, 300, 1, 2, dk, dv, 220, window(200), dk == 192},
          {280, 285, -1, -1, INFINITY});
  }
}

}  // namespace
}  // namespace nsa::kernels::testing
