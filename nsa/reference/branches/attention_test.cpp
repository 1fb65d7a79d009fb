// The three branches: which keys a row sees, and softmax attention over them.
#include "nsa/reference/branches/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nsa/reference/branches/cmp_attention.h"
#include "nsa/reference/branches/sel_attention.h"
#include "nsa/reference/branches/win_attention.h"
#include "nsa/reference/test_inputs.h"

namespace nsa::reference {
namespace {

using Tokens = std::vector<int64_t>;
const double kLn3 = std::log(3.0);

Config one_head() {
  Config c;
  c.num_heads = c.num_kv_heads = 1;
  c.qk_head_dim = c.v_head_dim = 1;
  c.block_size = c.block_stride = c.sel_block_size = 2;
  c.top_n = 2, c.n_initial = 0, c.n_local = 1, c.window = 2;
  c.rope = Rope::kNone;
  return c;
}

/// k and v of S tokens, one head, one channel.
Tensor<double> column(const std::vector<double>& values) {
  return Tensor<double>({1, static_cast<int64_t>(values.size()), 1, 1}, values);
}

TEST(CmpAttention, TwoBlocksByHand) {
  // Blocks {0,1} and {2,3}; keys 0 and ln 3, values 4 and 8, q = 1, scale 1. t = 0: nothing;
  // t = 1, 2: block 0, o = 4, lse = ln 1 = 0; t = 3: p = (1/4, 3/4), o = 1 + 6 = 7, lse = ln 4.
  const Attention a =
      cmp_attention(one_head(), column({1, 1, 1, 1}), column({0, kLn3}), column({4, 8}));
  EXPECT_EQ(a.o(0, 0, 0, 0), 0.0);
  EXPECT_EQ(a.lse(0, 0, 0), -std::numeric_limits<double>::infinity());
  for (const int64_t t : {1, 2}) {
    EXPECT_DOUBLE_EQ(a.o(0, t, 0, 0), 4.0);
    EXPECT_DOUBLE_EQ(a.lse(0, t, 0), 0.0);
  }
  EXPECT_DOUBLE_EQ(a.o(0, 3, 0, 0), 7.0);
  EXPECT_DOUBLE_EQ(a.lse(0, 3, 0), std::log(4.0));
  const std::vector<double> p = {0, 0, 1, 0, 1, 0, 0.25, 0.75};
  for (size_t i = 0; i < p.size(); ++i) EXPECT_DOUBLE_EQ(a.p.values()[i], p[i]) << i;
  EXPECT_EQ(a.reads.values(), (Tokens{0, 1, 1, 2}));
}

TEST(CmpAttention, ABlockIsVisibleFromItsLastToken) {
  Config c;  // l = 32, d = 16
  EXPECT_EQ(visible_blocks(c, 30), Tokens{});
  EXPECT_EQ(visible_blocks(c, 31), Tokens{0});
  EXPECT_EQ(visible_blocks(c, 46), Tokens{0});
  EXPECT_EQ(visible_blocks(c, 47), (Tokens{0, 1}));
}

TEST(Attention, ScaleIsOneOverRootOfKeyDim) {
  // dk = 4, scale 1/2: q.k = 4 * ln3/2 = 2 ln 3, logit ln 3. Values have dv = 2.
  Config c = one_head();
  c.qk_head_dim = 4, c.v_head_dim = 2;
  const double e = kLn3 / 2;
  const Attention a = win_attention(c, Tensor<double>({1, 2, 1, 4}, 1.0),
                                    Tensor<double>({1, 2, 1, 4}, {0, 0, 0, 0, e, e, e, e}),
                                    Tensor<double>({1, 2, 1, 2}, {4, 40, 8, 80}));
  EXPECT_DOUBLE_EQ(a.o(0, 1, 0, 0), 7.0);
  EXPECT_DOUBLE_EQ(a.o(0, 1, 0, 1), 70.0);
  EXPECT_DOUBLE_EQ(a.lse(0, 1, 0), std::log(4.0));
}

TEST(Attention, EveryBranchHasItsScale) {
  // dk = 4 and q.k = 4 ln 3 for the second key, 0 for the first. Scale 1/4 makes that ln 3 and
  // scale 1/8 its half, in each branch alone: o = (4 + 8 e^a) / (1 + e^a), lse = ln(1 + e^a).
  const Tensor<double> q({1, 2, 1, 4}, 1.0);
  const Tensor<double> k({1, 2, 1, 4}, {0, 0, 0, 0, kLn3, kLn3, kLn3, kLn3});
  const Tensor<double> v({1, 2, 1, 1}, {4, 8});
  const Tensor<int32_t> ranges({1, 2, 1, 1, 2}, {0, 2, 0, 2});
  Config c = one_head();
  c.qk_head_dim = 4;
  c.block_size = c.block_stride = c.sel_block_size = 1;  // a token is a block
  const auto expect = [](const Attention& a, double weight) {
    EXPECT_DOUBLE_EQ(a.o(0, 1, 0, 0), (4 + 8 * weight) / (1 + weight));
    EXPECT_DOUBLE_EQ(a.lse(0, 1, 0), std::log(1 + weight));
  };
  for (const auto scale : {&Config::scale_cmp, &Config::scale_sel, &Config::scale_win}) {
    Config own = c;
    own.scale_cmp = own.scale_sel = own.scale_win = 0.25;
    own.*scale = 0.125;
    const auto weight = [&](auto member) { return member == scale ? std::sqrt(3.0) : 3.0; };
    expect(cmp_attention(own, q, k, v), weight(&Config::scale_cmp));
    expect(sel_attention(q, k, v, ranges, own.scale_sel), weight(&Config::scale_sel));
    expect(win_attention(own, q, k, v), weight(&Config::scale_win));
  }
}

TEST(Attention, HeadsOfAGroupShareOneKvHeadAndItsReads) {
  // Hq = 4, Hkv = 2: heads 0, 1 see KV head 0 (value 5), heads 2, 3 see KV head 1 (value 6).
  Config c = one_head();
  c.num_heads = 4, c.num_kv_heads = 2;
  const Attention a =
      win_attention(c, Tensor<double>({1, 1, 4, 1}, 1.0), Tensor<double>({1, 1, 2, 1}),
                    Tensor<double>({1, 1, 2, 1}, {5, 6}));
  EXPECT_EQ(a.o.values(), (std::vector<double>{5, 5, 6, 6}));
  EXPECT_EQ(a.reads.values(), (Tokens{1, 1}));
}

TEST(Attention, HugeAndTinyLogits) {
  // Logits 1e4 and -1e4: all weight on the first, lse = 1e4. Logits +-2^-20: o = tanh(2^-20).
  const Config c = one_head();
  const Attention huge = win_attention(c, column({1, 1e4}), column({1, -1}), column({1, -1}));
  EXPECT_EQ(huge.o(0, 1, 0, 0), 1.0);
  EXPECT_EQ(huge.lse(0, 1, 0), 1e4);
  const double tiny = std::ldexp(1.0, -20);
  const Attention small = win_attention(c, column({1, tiny}), column({1, -1}), column({1, -1}));
  EXPECT_NEAR(small.o(0, 1, 0, 0), std::tanh(tiny), 1e-16);
}

TEST(WinAttention, WindowByHand) {
  // w = 2, keys all 0: the mean of the last two values: 1, 1.5, 3, 6.
  const Attention a =
      win_attention(one_head(), column({1, 1, 1, 1}), column({0, 0, 0, 0}), column({1, 2, 4, 8}));
  EXPECT_EQ(a.o.values(), (std::vector<double>{1, 1.5, 3, 6}));
  EXPECT_EQ(a.reads.values(), (Tokens{1, 2, 2, 2}));
  EXPECT_EQ(a.lse(0, 0, 0), 0.0);
  EXPECT_DOUBLE_EQ(a.lse(0, 3, 0), std::log(2.0));
}

TEST(WinAttention, KeysOfTheWindow) {
  Config c;
  c.window = 3;
  EXPECT_EQ(window_keys(c, 0), Tokens{0});
  EXPECT_EQ(window_keys(c, 2), (Tokens{0, 1, 2}));
  EXPECT_EQ(window_keys(c, 3), (Tokens{1, 2, 3}));
  c.window = 1;
  EXPECT_EQ(window_keys(c, 7), Tokens{7});
}

TEST(WinAttention, AWindowOfNoKeysIsExactlyZero) {
  Config c = one_head();
  c.window = 0;
  EXPECT_EQ(window_keys(c, 0), Tokens{});
  EXPECT_EQ(window_keys(c, 7), Tokens{});
  const double nan = std::nan("");
  const Attention a = win_attention(c, column({1, 1}), column({nan, nan}), column({nan, nan}));
  EXPECT_EQ(a.o.values(), (std::vector<double>{0, 0}));
  EXPECT_EQ(a.reads.values(), (Tokens{0, 0}));
  for (const double lse : a.lse.values()) EXPECT_EQ(lse, -std::numeric_limits<double>::infinity());
  const AttentionGradients d = win_attention_backward(c, column({1, 1}), column({nan, nan}),
                                                      column({nan, nan}), column({1, 1}));
  for (const auto& gradient : {d.q, d.k, d.v})
    EXPECT_EQ(gradient.values(), (std::vector<double>{0, 0}));
}

TEST(SelAttention, UnionOfRanges) {
  const auto tokens = [](std::vector<int32_t> ranges, int64_t t) {
    return union_of_ranges(ranges, t);
  };
  EXPECT_EQ(tokens({0, 2, 4, 6}, 9), (Tokens{0, 1, 4, 5}));
  EXPECT_EQ(tokens({4, 6, 0, 2}, 9), (Tokens{0, 1, 4, 5}));        // unordered
  EXPECT_EQ(tokens({0, 3, 1, 4, 2, 3}, 9), (Tokens{0, 1, 2, 3}));  // overlapping, nested
  EXPECT_EQ(tokens({2, 99}, 4), (Tokens{2, 3, 4}));                // beyond t
  EXPECT_EQ(tokens({7, 9}, 4), Tokens{});                          // all beyond t
  EXPECT_EQ(tokens({0, 0, 5, 3, 1, 2}, 4), Tokens{1});             // unused, backwards
  EXPECT_EQ(tokens({-3, 2}, 4), (Tokens{0, 1}));                   // before the sequence
  EXPECT_EQ(tokens({}, 4), Tokens{});
}

TEST(SelAttention, ByHand) {
  // t = 3, intervals [0,1) and [2,4): values 1, 4, 8 with keys 0, ln 3, 0: p = (1, 3, 1) / 5,
  // o = (1 + 12 + 8) / 5 = 4.2, lse = ln 5. t = 0: empty row.
  Tensor<int32_t> ranges({1, 4, 1, 2, 2});
  const std::vector<int32_t> row = {0, 1, 2, 4};
  std::ranges::copy(row, ranges.row(0, 3, 0).begin());
  const Attention a =
      sel_attention(column({1, 1, 1, 1}), column({0, 9, kLn3, 0}), column({1, 2, 4, 8}), ranges);
  EXPECT_DOUBLE_EQ(a.o(0, 3, 0, 0), 4.2);
  EXPECT_DOUBLE_EQ(a.lse(0, 3, 0), std::log(5.0));
  EXPECT_EQ(a.o(0, 0, 0, 0), 0.0);
  EXPECT_EQ(a.lse(0, 0, 0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(a.reads.values(), (Tokens{0, 0, 0, 3}));
}

TEST(SelAttention, NoIdsAtAll) {
  const Attention a = sel_attention(column({1, 1}), column({0, 0}), column({1, 2}),
                                    Tensor<int32_t>({1, 2, 1, 0, 2}));
  EXPECT_EQ(a.o.values(), (std::vector<double>{0, 0}));
}

TEST(Attention, BackwardByHand) {
  // p = (1/4, 3/4), v = (4, 8), o = 7, q = 1, d_o = 1: d_v = p; d_p = v; d_s = p (v - o) =
  // (-3/4, 3/4); d_q = sum of d_s k = 3/4 ln 3; d_k = d_s q. Row 0 has d_o = 0.
  const AttentionGradients d = win_attention_backward(one_head(), column({1, 1}), column({0, kLn3}),
                                                      column({4, 8}), column({0, 1}));
  EXPECT_DOUBLE_EQ(d.v(0, 0, 0, 0), 0.25);
  EXPECT_DOUBLE_EQ(d.v(0, 1, 0, 0), 0.75);
  EXPECT_DOUBLE_EQ(d.k(0, 0, 0, 0), -0.75);
  EXPECT_DOUBLE_EQ(d.k(0, 1, 0, 0), 0.75);
  EXPECT_EQ(d.q(0, 0, 0, 0), 0.0);
  EXPECT_DOUBLE_EQ(d.q(0, 1, 0, 0), 0.75 * kLn3);
}

TEST(Attention, Errors) {
  EXPECT_EQ(error_of([] {
              win_attention(one_head(), column({1, 1}), column({0}), Tensor<double>({2, 1, 1, 1}));
            }),
            "nsa::reference::win_attention: v must be [1, 1, 1, 1], got [2, 1, 1, 1]");
  EXPECT_EQ(error_of([] {
              sel_attention(column({1, 1}), column({0, 0}), column({0, 0}),
                            Tensor<int32_t>({1, 1, 1, 1, 2}));
            }),
            "nsa::reference::sel_attention: ranges must be [1, 2, 1, 1, 2], got [1, 1, 1, 1, 2]");
  EXPECT_EQ(
      error_of([] { cmp_attention(one_head(), column({1, 1}), column({0, 0}), column({0, 0})); }),
      "nsa::reference::cmp_attention: k_cmp must be [1, 1, 1, 1], got [1, 2, 1, 1]");
}

}  // namespace
}  // namespace nsa::reference
