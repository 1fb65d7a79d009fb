// batched == sequential == decode == chosen rows == separate documents, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nsa/reference/passes/decode.h"
#include "nsa/reference/passes/forward.h"
#include "nsa/reference/passes/rows.h"
#include "nsa/reference/passes/sequential.h"
#include "nsa/reference/passes/varlen.h"
#include "nsa/reference/stages/rope.h"
#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

/// Name of the first stage that differs in a bit; empty when all agree.
std::string first_differing_stage(const Outputs& x, const Outputs& y) {
  const std::pair<const char*, Tensor<double> Outputs::*> stages[] = {
      {"q_rot", &Outputs::q_rot},
      {"k_cmp", &Outputs::k_cmp},
      {"v_cmp", &Outputs::v_cmp},
      {"p_cmp", &Outputs::p_cmp},
      {"scores", &Outputs::scores},
      {"o_cmp", &Outputs::o_cmp},
      {"o_sel", &Outputs::o_sel},
      {"o_win", &Outputs::o_win},
      {"o", &Outputs::o},
      {"lse_cmp", &Outputs::lse_cmp},
      {"lse_sel", &Outputs::lse_sel},
      {"lse_win", &Outputs::lse_win}};
  if (!same_bits(x.block_idx, y.block_idx)) return "block_idx";
  if (!same_bits(x.ranges, y.ranges)) return "ranges";
  if (!same_bits(x.reads, y.reads)) return "reads";
  for (const auto& [name, stage] : stages)
    if (!same_bits(x.*stage, y.*stage)) return name;
  return "";
}

/// Every phi, RoPE option and gate, G = 1, 2, 3, gates a head and a group, a scale for each branch,
/// no window.
struct Mode {
  Phi phi;
  Rope rope;
  Gate gate;
  int64_t num_heads, num_kv_heads;
  bool per_group;
  bool own_scales = false;
  bool no_window = false;
  RopePairs pairs = RopePairs::kInterleaved;
};
const Mode kModes[] = {
    {Phi::kMean, Rope::kBeforePool, Gate::kNone, 4, 2, false},
    {Phi::kConv, Rope::kBlockStart, Gate::kSigmoid, 3, 1, true},
    {Phi::kMlp, Rope::kBeforePool, Gate::kSoftmax, 2, 2, false},
    {Phi::kMlp, Rope::kNone, Gate::kSigmoid, 6, 2, true},
    {Phi::kMean, Rope::kBlockStart, Gate::kSoftmax, 4, 2, false, true},
    {Phi::kMean, Rope::kBeforePool, Gate::kSoftmax, 4, 2, true, false, true},
    {Phi::kMean, Rope::kBeforePool, Gate::kNone, 4, 2, false, false, false, RopePairs::kHalfSplit},
    {Phi::kConv, Rope::kBlockStart, Gate::kNone, 4, 2, false, false, false, RopePairs::kHalfSplit}};

Config config_of(const Mode& mode) {
  Config c = small_config();
  c.phi = mode.phi, c.rope = mode.rope, c.gate = mode.gate;
  c.num_heads = mode.num_heads, c.num_kv_heads = mode.num_kv_heads;
  c.rope_pairs = mode.pairs;
  if (mode.no_window) c.window = 0;
  if (mode.own_scales) c.scale_cmp = 1.5, c.scale_sel = 0.125, c.scale_win = 3;
  return c;
}

// l-1, l, l+1 = 3, 4, 5 (also l' and w), block boundaries, a prime, S > 2w.
const int64_t kLengths[] = {1, 3, 4, 5, 6, 7, 8, 13, 24};

TEST(Modes, SequentialEqualsBatched) {
  for (const Mode& mode : kModes)
    for (const int64_t S : kLengths) {
      const Config c = config_of(mode);
      const Inputs x = random_inputs(c, 2, S, 11, mode.per_group);
      EXPECT_EQ(first_differing_stage(forward(c, x), sequential(c, x)), "") << S;
    }
}

TEST(Modes, DecodeEqualsBatchedForEveryPrefill) {
  for (const Mode& mode : kModes)
    for (const int64_t S : kLengths) {
      const Config c = config_of(mode);
      const Inputs x = random_inputs(c, 2, S, 12, mode.per_group);
      const Outputs batched = forward(c, x);
      for (int64_t prefill = 0; prefill <= S; ++prefill)  // the second sequence has its own t
        EXPECT_EQ(first_differing_stage(batched, decode(c, x, {prefill, S - prefill})), "")
            << "S " << S << " prefill " << prefill;
    }
}

TEST(Modes, PrefillIntoANonEmptyCacheEqualsSteps) {
  const Config c = small_config();
  const Inputs x = random_inputs(c, 1, 17, 13);
  const Outputs batched = forward(c, x);
  DecodeCache cache(c, {}, {}, 17);
  cache.prefill(slice_tokens(x, 0, 6));
  const Outputs middle = cache.prefill(slice_tokens(x, 6, 16));
  const Outputs last = cache.step(slice_tokens(x, 16, 17));
  EXPECT_EQ(cache.num_tokens(), 17);
  EXPECT_TRUE(same_bits(cache.k_cmp(), batched.k_cmp));
  for (int64_t e = 0; e < 3; ++e) {
    EXPECT_EQ(middle.o(0, 9, 3, e), batched.o(0, 15, 3, e));
    EXPECT_EQ(last.o(0, 0, 3, e), batched.o(0, 16, 3, e));
  }
}

TEST(Modes, EmissionReadsAreCountedApart) {
  // l = 4, d = 2: of the steps 0..8 those at t = 3, 5, 7 emit, 4 tokens for each of 2 KV heads.
  const Config c = small_config();
  const Inputs x = random_inputs(c, 1, 9, 14);
  DecodeCache cache(c, {}, {}, 9);
  for (int64_t t = 0; t < 9; ++t) cache.step(slice_tokens(x, t, t + 1));
  EXPECT_EQ(cache.emission_reads(), 3 * 4 * 2);
}

TEST(Modes, DecodeIgnoresPoisonInOldSlots) {
  // Tokens that left window and compression ring are overwritten: a NaN there shows only in the
  // rows that attend it.
  Config c = small_config();
  c.top_n = 1, c.n_initial = 0;
  Inputs x = random_inputs(c, 1, 20, 15);
  for (double& value : x.v_win.row(0, 2)) value = std::nan("");
  const Outputs out = decode(c, x, {0});
  for (int64_t t = 0; t < 20; ++t)
    EXPECT_EQ(std::isnan(out.o_win(0, t, 0, 0)), t >= 2 && t <= 6) << t;
}

TEST(Modes, DecodeErrors) {
  const Config c = small_config();
  const Inputs x = random_inputs(c, 1, 3, 16);
  EXPECT_EQ(error_of([&] { DecodeCache(c, {}, {}, 2).prefill(x); }),
            "nsa::reference::decode: tokens must be at most capacity=2, got 3");
  EXPECT_EQ(error_of([&] { DecodeCache(c, {}, {}, 9).step(x); }),
            "nsa::reference::decode: S of a step must be 1, got 3");
  EXPECT_EQ(error_of([&] { DecodeCache(c, {}, {}, 9).prefill(random_inputs(c, 2, 3, 1)); }),
            "nsa::reference::decode: B of one cache must be 1, got 2");
  EXPECT_EQ(error_of([&] { decode(c, x, {1, 2}); }),
            "nsa::reference::decode: prefill must be 1 lengths, got 2");
}

TEST(TokenRing, RefusesOverwrittenPositions) {
  TokenRing ring(2, 1, 1, 1);
  const std::vector<double> one = {1}, two = {2}, three = {3};
  ring.put(0, one, one);
  ring.put(1, two, two);
  ring.put(2, three, three);
  EXPECT_EQ(ring.at(1, 0).k[0], 2);
  EXPECT_EQ(ring.at(2, 0).v[0], 3);
  EXPECT_EQ(error_of([&] { static_cast<void>(ring.at(0, 0)); }),
            "nsa::reference::TokenRing: position 0 is gone, its slot holds 2");
  EXPECT_THAT(error_of([&] { static_cast<void>(ring.at(3, 0)); }),
              ::testing::HasSubstr("slot holds 1"));
}

Outputs by_rows(const Config& c, const Inputs& x, const Given& given) {
  const int64_t B = x.q.size(0), S = x.q.size(1);
  Outputs out = allocate_outputs(c, B, S, S);
  Rows rows(c, x, given);
  for (int64_t t = S - 1; t >= 0; --t)  // any order
    for (int64_t b = 0; b < B; ++b)
      for (int64_t j = 0; j < c.num_kv_heads; ++j)
        store_row(c, rows.evaluate(b, t, j), b, t, j, out);
  return out;
}

TEST(Rows, EqualTheWholeTensors) {
  for (const Mode& mode : kModes) {
    const Config c = config_of(mode);
    const Inputs x = random_inputs(c, 2, 24, 17, mode.per_group);
    Outputs whole = forward(c, x);
    Given given;
    Outputs rows = by_rows(c, x, given);
    rows.q_rot = whole.q_rot, rows.k_cmp = whole.k_cmp, rows.v_cmp = whole.v_cmp;
    EXPECT_EQ(first_differing_stage(whole, rows), "");

    const Inputs other = random_inputs(c, 2, 24, 18, mode.per_group);
    given.q_rot = other.q, given.k_sel_rot = other.k_sel, given.k_win_rot = other.k_win;
    given.k_cmp = forward(c, other).k_cmp, given.v_cmp = forward(c, other).v_cmp;
    given.block_idx = forward(c, other).block_idx;
    whole = forward(c, x, given);
    rows = by_rows(c, x, given);
    rows.q_rot = whole.q_rot, rows.k_cmp = whole.k_cmp, rows.v_cmp = whole.v_cmp;
    EXPECT_EQ(first_differing_stage(whole, rows), "");
  }
}

TEST(Rows, DoWithoutQueriesOfTheWholeSequence) {
  const Config c = small_config();
  const Inputs x = random_inputs(c, 1, 21, 19);
  const Outputs whole = forward(c, x);
  Inputs keys = x;
  keys.q = keys.gates = {};
  Rows rows(c, keys);
  const RowQuery query{.t = 20,
                       .q = queries_of_row(c, whole.q_rot, 0, 20, 1),
                       .gates = gates_of_row(c, x.gates, 0, 20, 1)};
  const RowResult row = rows.evaluate(0, 1, query);
  for (int64_t g = 0; g < 2; ++g)
    for (int64_t e = 0; e < 3; ++e) EXPECT_EQ(row.o(g, e), whole.o(0, 20, 2 + g, e));
  EXPECT_EQ(error_of([&] { rows.evaluate(0, 20, 1); }),
            "nsa::reference::Rows: q must be [B,S,Hq,dk], got nothing");
  EXPECT_EQ(error_of([&] { rows.evaluate(0, 21, 1); }),
            "nsa::reference::Rows: row (b, t, kv_head) must be inside [1, 21, 2], got [0, 21, 1]");
}

/// The same values without the axis B = 1.
Inputs packed(Inputs x) {
  for (const auto member : {&Inputs::q, &Inputs::k_cmp_src, &Inputs::v_cmp_src, &Inputs::k_sel,
                            &Inputs::v_sel, &Inputs::k_win, &Inputs::v_win, &Inputs::gates}) {
    Shape shape = (x.*member).shape();
    shape.erase(shape.begin());
    x.*member = Tensor<double>(shape, (x.*member).values());
  }
  return x;
}

TEST(Varlen, EqualsSeparateCalls) {
  // Documents of 0, 1, l-1, l, 0, 19 tokens.
  const std::vector<int32_t> cu = {0, 0, 1, 4, 8, 8, 27};
  for (const Mode& mode : kModes) {
    const Config c = config_of(mode);
    const Inputs x = random_inputs(c, 1, 27, 20, mode.per_group);
    const VarlenOutputs out = forward_varlen(c, packed(x), cu);
    EXPECT_EQ(out.cu_cmp, (std::vector<int32_t>{0, 0, 0, 0, 1, 1, 9}));
    EXPECT_EQ(out.p_cmp.shape(), (Shape{27, c.num_heads, 8}));
    EXPECT_EQ(out.scores.shape(), (Shape{27, c.num_kv_heads, 5}));
    EXPECT_EQ(out.k_cmp.shape(), (Shape{9, c.num_kv_heads, 4}));
    for (size_t i = 0; i + 1 < cu.size(); ++i) {
      const Outputs one = forward(c, slice_tokens(x, cu[i], cu[i + 1]));
      for (int64_t t = cu[i]; t < cu[i + 1]; ++t) {
        const int64_t row = t - cu[i];
        EXPECT_TRUE(std::ranges::equal(out.o.row(t), one.o.row(0, row)));
        EXPECT_TRUE(std::ranges::equal(out.lse_cmp.row(t), one.lse_cmp.row(0, row)));
        EXPECT_TRUE(std::ranges::equal(out.block_idx.row(t), one.block_idx.row(0, row)));
        EXPECT_TRUE(std::ranges::equal(out.ranges.row(t), one.ranges.row(0, row)));
        EXPECT_TRUE(std::ranges::equal(out.q_rot.row(t), one.q_rot.row(0, row)));
        for (int64_t j = 0; j < c.num_kv_heads; ++j)
          for (int64_t m = 0; m < 5; ++m)
            EXPECT_EQ(out.scores(t, j, m), m < one.scores.size(3) ? one.scores(0, row, j, m) : 0.0);
        for (int64_t h = 0; h < c.num_heads; ++h)
          for (int64_t m = 0; m < 8; ++m)
            EXPECT_EQ(out.p_cmp(t, h, m), m < one.p_cmp.size(3) ? one.p_cmp(0, row, h, m) : 0.0);
      }
      for (int64_t m = 0; m < one.k_cmp.size(1); ++m)
        EXPECT_TRUE(std::ranges::equal(out.v_cmp.row(out.cu_cmp[i] + m), one.v_cmp.row(0, m)));
    }
    Given given;
    given.k_cmp = out.k_cmp, given.ranges = out.ranges;
    EXPECT_TRUE(same_bits(forward_varlen(c, packed(x), cu, given).o, out.o));
  }
}

TEST(Varlen, NothingCrossesADocumentBoundary) {
  const Config c = small_config();
  const Inputs x = random_inputs(c, 1, 16, 21);
  Inputs changed = x;
  for (const auto member : {&Inputs::k_cmp_src, &Inputs::v_cmp_src, &Inputs::k_sel, &Inputs::v_sel,
                            &Inputs::k_win, &Inputs::v_win})
    for (int64_t t = 0; t < 7; ++t)
      for (double& value : (changed.*member).row(0, t)) value = std::nan("");
  const Tensor<double> o = forward_varlen(c, packed(x), {0, 7, 16}).o;
  const Tensor<double> poisoned = forward_varlen(c, packed(changed), {0, 7, 16}).o;
  for (int64_t t = 0; t < 16; ++t)
    EXPECT_EQ(std::ranges::equal(o.row(t), poisoned.row(t)), t >= 7) << t;
}

TEST(Varlen, Errors) {
  const Config c = small_config();
  const Inputs x = packed(random_inputs(c, 1, 5, 22));
  const auto error_with = [&](std::vector<int32_t> cu) {
    return error_of([&] { forward_varlen(c, x, cu); });
  };
  const std::string prefix = "nsa::reference::varlen: ";
  EXPECT_EQ(error_with({}), prefix + "cu_seqlens must be at least 1 long, got 0");
  EXPECT_EQ(error_with({1, 5}), prefix + "cu_seqlens[0] must be 0, got 1");
  EXPECT_EQ(error_with({0, 3, 2, 5}),
            prefix + "cu_seqlens[2] must be at least its predecessor 3, got 2");
  EXPECT_EQ(error_with({0, 4}), prefix + "the last of cu_seqlens must be T=5, got 4");
  EXPECT_EQ(error_with({0, 6}), prefix + "the last of cu_seqlens must be T=5, got 6");
  EXPECT_EQ(forward_varlen(c, packed(random_inputs(c, 1, 0, 1)), {0}).o.shape(), (Shape{0, 4, 3}));
}

}  // namespace
}  // namespace nsa::reference
