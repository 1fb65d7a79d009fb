#include "nsa/reference/passes/forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nsa/reference/branches/win_attention.h"
#include "nsa/reference/stages/ranges.h"
#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

using Values = std::vector<double>;

TEST(Forward, ByHand) {
  // One head, dk = dv = 1, l = d = l' = 2, n = 1 (the current block), w = 1, no RoPE. All keys are
  // 0, so every softmax is uniform; V = 1, 2, 4, 8; blocks (1+2)/2 = 1.5 and (4+8)/2 = 6.
  //   t    o_cmp            o_sel          o_win   1*cmp + 10*sel + 100*win
  //   0    0                1              1       110
  //   1    1.5              (1+2)/2 = 1.5  2       216.5
  //   2    1.5              4              4       441.5
  //   3    (1.5+6)/2=3.75   (4+8)/2 = 6    8       863.75
  Config c;
  c.num_heads = c.num_kv_heads = c.qk_head_dim = c.v_head_dim = 1;
  c.block_size = c.block_stride = c.sel_block_size = 2;
  c.top_n = 1, c.n_initial = 0, c.n_local = 1, c.window = 1, c.rope = Rope::kNone;
  Inputs x;
  x.q = Tensor<double>({1, 4, 1, 1}, 1.0);
  x.k_cmp_src = x.k_sel = x.k_win = Tensor<double>({1, 4, 1, 1});
  x.v_cmp_src = x.v_sel = x.v_win = Tensor<double>({1, 4, 1, 1}, {1, 2, 4, 8});
  x.gates = Tensor<double>({1, 4, 1, 3}, {1, 10, 100, 1, 10, 100, 1, 10, 100, 1, 10, 100});
  const Outputs out = forward(c, x);
  EXPECT_EQ(out.o_cmp.values(), (Values{0, 1.5, 1.5, 3.75}));
  EXPECT_EQ(out.o_sel.values(), (Values{1, 1.5, 4, 6}));
  EXPECT_EQ(out.o_win.values(), (Values{1, 2, 4, 8}));
  EXPECT_EQ(out.o.values(), (Values{110, 216.5, 441.5, 863.75}));
  EXPECT_EQ(out.p_cmp.values(), (Values{0, 0, 1, 0, 1, 0, 0.5, 0.5}));
  EXPECT_EQ(out.scores.values(), (Values{0, 0, 1, 0, 1, 0, 0.5, 0.5}));
  EXPECT_EQ(out.block_idx.values(), (std::vector<int32_t>{0, 0, 1, 1}));
  EXPECT_EQ(out.ranges.values(), (std::vector<int32_t>{0, 1, 0, 2, 2, 3, 2, 4}));
  // cmp, sel, win by t: N_c(t+1), tokens of the current block up to t, min(1, t+1).
  EXPECT_EQ(out.reads.values(), (std::vector<int64_t>{0, 1, 1, 1, 2, 1, 1, 1, 1, 2, 2, 1}));
}

TEST(Forward, ReadsFollowTheFormula) {
  // N_c(t+1) + [(min(n,c+1)-1)*l' + t - c*l' + 1] + min(w, t+1)
  const Config c = small_config();
  const Outputs out = forward(c, random_inputs(c, 2, 37, 3));
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < 37; ++t)
      for (int64_t j = 0; j < 2; ++j) {
        const int64_t current = t / 4;
        EXPECT_EQ(out.reads(b, t, j, 0), t < 3 ? 0 : (t + 1 - 4) / 2 + 1);
        EXPECT_EQ(out.reads(b, t, j, 1),
                  (std::min<int64_t>(3, current + 1) - 1) * 4 + t - 4 * current + 1);
        EXPECT_EQ(out.reads(b, t, j, 2), std::min<int64_t>(5, t + 1));
      }
}

TEST(Forward, FullCoverageEqualsDenseCausalAttention) {
  Config c = small_config();
  c.window = 100, c.top_n = 100;
  Inputs x = random_inputs(c, 1, 23, 4);
  x.k_sel = x.k_win;
  x.v_sel = x.v_win;
  const Outputs out = forward(c, x);
  EXPECT_TRUE(same_bits(out.o_sel, out.o_win));
  // Dense attention written once more: row 22, head 3 (KV head 1).
  Values weight;
  double sum = 0;
  // Rotated q.k depends on the distance only: (q k*) turned by its angle, real part.
  const auto logit = [&](int64_t s) {
    double dot = 0;
    for (int64_t m = 0; m < 2; ++m) {
      const double a =
          static_cast<double>(22 - s) * std::pow(1e4, -2.0 * static_cast<double>(m) / 4);
      const double qe = x.q(0, 22, 3, 2 * m), qo = x.q(0, 22, 3, 2 * m + 1);
      const double ke = x.k_win(0, s, 1, 2 * m), ko = x.k_win(0, s, 1, 2 * m + 1);
      dot += (qe * ke + qo * ko) * std::cos(a) - (qo * ke - qe * ko) * std::sin(a);
    }
    return dot / 2;
  };
  for (int64_t s = 0; s <= 22; ++s) sum += weight.emplace_back(std::exp(logit(s)));
  for (int64_t e = 0; e < 3; ++e) {
    double o = 0;
    for (int64_t s = 0; s <= 22; ++s)
      o += weight[static_cast<size_t>(s)] / sum * x.v_win(0, s, 1, e);
    EXPECT_NEAR(out.o_win(0, 22, 3, e), o, 1e-14);
  }
}

TEST(Forward, PermutingGroupsPermutesOutputs) {
  const Config c = small_config();  // heads 0, 1 | 2, 3
  const Inputs x = random_inputs(c, 1, 19, 5);
  Inputs swapped = x;
  const auto swap_heads = [](Tensor<double>& tensor) {
    const size_t half = static_cast<size_t>(tensor.size(2) * tensor.size(3)) / 2;
    for (int64_t t = 0; t < tensor.size(1); ++t) {
      const auto row = tensor.row(0, t);
      std::swap_ranges(row.begin(), row.begin() + static_cast<ptrdiff_t>(half),
                       row.begin() + static_cast<ptrdiff_t>(half));
    }
  };
  for (const auto member : {&Inputs::q, &Inputs::k_cmp_src, &Inputs::v_cmp_src, &Inputs::k_sel,
                            &Inputs::v_sel, &Inputs::k_win, &Inputs::v_win, &Inputs::gates})
    swap_heads(swapped.*member);
  Outputs out = forward(c, x);
  swap_heads(out.o);
  EXPECT_TRUE(same_bits(out.o, forward(c, swapped).o));
}

/// Every output row up to and including t.
bool same_past(const Outputs& x, const Outputs& y, int64_t t) {
  bool same = true;
  const auto compare = [&](const auto& a, const auto& b) {
    for (int64_t row = 0; row <= t; ++row) {
      const auto ra = a.row(0, row), rb = b.row(0, row);
      same = same && std::memcmp(ra.data(), rb.data(), ra.size_bytes()) == 0;
    }
  };
  for (const auto member :
       {&Outputs::p_cmp, &Outputs::scores, &Outputs::o_cmp, &Outputs::o_sel, &Outputs::o_win,
        &Outputs::o, &Outputs::lse_cmp, &Outputs::lse_sel, &Outputs::lse_win})
    compare(x.*member, y.*member);
  compare(x.block_idx, y.block_idx);
  compare(x.ranges, y.ranges);
  return same;
}

TEST(Forward, TheFutureHasNoInfluence) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Phi phi : {Phi::kMean, Phi::kConv, Phi::kMlp}) {
    Config c = small_config();
    c.phi = phi;
    const int64_t S = 2 * c.window + 13;
    const Inputs x = random_inputs(c, 1, S, 6);
    const Outputs out = forward(c, x);
    for (const double poison : {0.25, 1e4, std::nan(""), inf, -inf})
      for (const int64_t t : {int64_t{0}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{9}, S - 2}) {
        Inputs changed = x;
        for (const auto member :
             {&Inputs::q, &Inputs::k_cmp_src, &Inputs::v_cmp_src, &Inputs::k_sel, &Inputs::v_sel,
              &Inputs::k_win, &Inputs::v_win, &Inputs::gates})
          for (int64_t s = t + 1; s < S; ++s)
            for (double& value : (changed.*member).row(0, s)) value = poison;
        EXPECT_TRUE(same_past(out, forward(c, changed), t)) << poison << " after " << t;
      }
  }
}

TEST(Forward, UnattendedTokenHasNoInfluence) {
  // A NaN token 6 in k_win / v_win reaches the rows 6..10 (w = 5) of the window branch, no others.
  const Config c = small_config();
  const Inputs x = random_inputs(c, 1, 20, 7);
  Inputs changed = x;
  for (double& value : changed.k_win.row(0, 6)) value = std::nan("");
  for (double& value : changed.v_win.row(0, 6)) value = std::nan("");
  const Outputs out = forward(c, x), poisoned = forward(c, changed);
  EXPECT_TRUE(same_bits(out.o_cmp, poisoned.o_cmp));
  EXPECT_TRUE(same_bits(out.o_sel, poisoned.o_sel));
  for (int64_t t = 0; t < 20; ++t)
    EXPECT_EQ(std::isnan(poisoned.o_win(0, t, 0, 0)), t >= 6 && t <= 10) << t;
}

TEST(Forward, EmptyTensors) {
  const Config c = small_config();
  for (const auto& [B, S] : {std::pair<int64_t, int64_t>{0, 5}, {2, 0}}) {
    const Outputs out = forward(c, random_inputs(c, B, S, 8));
    EXPECT_EQ(out.o.shape(), (Shape{B, S, 4, 3}));
    EXPECT_EQ(out.scores.shape(), (Shape{B, S, 2, (S + 3) / 4}));
  }
}

TEST(Forward, GivenStagesReplaceComputedOnes) {
  const Config c = small_config();
  const Inputs x = random_inputs(c, 1, 18, 9);
  const Outputs out = forward(c, x);
  Given all;
  all.q_rot = out.q_rot, all.k_cmp = out.k_cmp, all.v_cmp = out.v_cmp;
  all.block_idx = out.block_idx, all.ranges = out.ranges;
  EXPECT_TRUE(same_bits(out.o, forward(c, x, all).o));
  // Given ids of another width: block 0 alone up to t = 17.
  Given first;
  first.block_idx = Tensor<int32_t>({1, 18, 2, 1});
  const Outputs only_first = forward(c, x, first);
  EXPECT_EQ(only_first.ranges.shape(), (Shape{1, 18, 2, 1, 2}));
  EXPECT_EQ(only_first.reads(0, 17, 0, 1), 4);
  EXPECT_TRUE(same_bits(only_first.o_win, out.o_win));
}

TEST(Forward, Errors) {
  const Config c = small_config();
  const Inputs x = random_inputs(c, 2, 5, 10);
  const std::string prefix = "nsa::reference::forward: ";
  const auto error_with = [&](auto change) {
    Inputs bad = x;
    change(bad);
    return error_of([&] { forward(c, bad); });
  };
  EXPECT_EQ(error_with([](Inputs& i) { i.q = Tensor<double>({2, 5, 4, 5}); }),
            prefix + "q must be [2, 5, 4, 4], got [2, 5, 4, 5]");
  EXPECT_EQ(error_with([](Inputs& i) { i.k_win = Tensor<double>({2, 6, 2, 4}); }),
            prefix + "k_win must be [2, 5, 2, 4], got [2, 6, 2, 4]");
  EXPECT_EQ(error_with([](Inputs& i) { i.v_sel = {}; }),
            prefix + "v_sel must be [2, 5, 2, 3], got nothing");
  EXPECT_EQ(error_with([](Inputs& i) { i.gates = Tensor<double>({2, 5, 3, 3}); }),
            prefix + "gates must be [2, 5, 4, 3], got [2, 5, 3, 3]");
  Given given;
  given.block_idx = Tensor<int32_t>({2, 4, 2, 3});
  EXPECT_EQ(error_of([&] { forward(c, x, given); }),
            prefix + "given block_idx must be [2, 5, 2, 3], got [2, 4, 2, 3]");
  Config bad = c;
  bad.block_stride = 3;
  EXPECT_THAT(error_of([&] { forward(bad, x); }),
              ::testing::HasSubstr("block_stride must be a divisor"));
}

}  // namespace
}  // namespace nsa::reference
