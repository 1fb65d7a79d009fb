// The three branches: hand-computed rows, gradients by central differences, arguments.
#include <cmath>
#include <limits>

#include "nsa/cmp_attn/cmp_attn.h"
#include "nsa/core/test_util.h"
#include "nsa/sel_attn/gathered_attention.h"
#include "nsa/sel_attn/sel_attn.h"
#include "nsa/win_attn/win_attn.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;
constexpr double kInf = std::numeric_limits<double>::infinity();

/// dk = 1: the scale is 1 and a logit is q * k.
at::Tensor column(const std::vector<double>& values) {
  return doubles(values, {1, static_cast<int64_t>(values.size()), 1, 1});
}

NsaConfig blocks(int64_t l, int64_t d) {
  NsaConfig c;
  c.block_size = l, c.block_stride = d;
  return c;
}

TEST(CmpAttn, HandComputedTwoBlocks) {
  // l = 2, d = 1: block 0 is visible from t = 1, block 1 from t = 2. Logits ln 1 and ln 3.
  const at::Tensor q = column({1, 1, 1}), k = column({0, std::log(3.0)}), v = column({4, 8});
  const CmpAttnResult r = cmp_attn(q, k, v, blocks(2, 1));
  expect_near(r.out.flatten(), doubles({0, 4, (4 + 3 * 8) / 4.0}, {3}));
  expect_near(r.lse.flatten(), doubles({-kInf, 0, std::log(4.0)}, {3}));
  expect_near(r.group_probs.flatten(), doubles({0, 0, 1, 0, 0.25, 0.75}, {6}));
  expect_near(cmp_probs(q, k, blocks(2, 1)).flatten(), doubles({0, 0, 1, 0, 0.25, 0.75}, {6}));
  EXPECT_FALSE(r.group_probs.requires_grad());
}

TEST(CmpAttn, FirstPositionShiftsTheRows) {
  at::manual_seed(1);
  const at::Tensor q = at::randn({2, 9, 4, 3}, at::kDouble);
  const at::Tensor k = at::randn({2, 4, 2, 3}, at::kDouble),
                   v = at::randn({2, 4, 2, 5}, at::kDouble);
  const CmpAttnResult all = cmp_attn(q, k, v, blocks(3, 2));
  const CmpAttnResult tail = cmp_attn(q.narrow(1, 5, 4), k, v, blocks(3, 2), 5);
  expect_near(tail.out, all.out.narrow(1, 5, 4));
  expect_near(tail.group_probs, all.group_probs.narrow(1, 5, 4));
}

TEST(WinAttn, HandComputedWindowOfTwo) {
  const at::Tensor q = column({1, 1, 1}), k = column({5, 0, std::log(3.0)}), v = column({1, 4, 8});
  const auto [out, lse] = win_attn(q, k, v, 2);
  const double p = 1 / (1 + std::exp(5.0));  // of key 1 against key 0
  expect_near(out.flatten(), doubles({1, 4 * p + (1 - p), 7}, {3}));
  EXPECT_NEAR(lse[0][2][0].item<double>(), std::log(4.0), 1e-14);
}

TEST(WinAttn, HugeLogitsStayFinite) {
  const auto [out, lse] = win_attn(column({1e4, 1e4}), column({1e4, -1e4}), column({3, 5}), 8);
  expect_near(out.flatten(), doubles({3, 3}, {2}));
  expect_near(lse.flatten(), doubles({1e8, 1e8}, {2}));
}

TEST(SelAttn, UnionOfOverlappingUnorderedAndBeyond) {
  // Row t = 3: intervals [2,9) [0,1) [2,3) -> keys 0, 2, 3. Row t = 0: none; t = 1: an empty one.
  const at::Tensor q = column({0, 0, 0, 0}), v = column({1, 10, 100, 1000});
  at::Tensor ranges = at::zeros({1, 4, 1, 3, 2}, at::kInt);
  ranges[0][1][0].copy_(ints({1, 1, 3, 2, 0, 0}, {3, 2}));
  ranges[0][2][0].copy_(ints({-5, 1, 1, 2, 7, 9}, {3, 2}));
  ranges[0][3][0].copy_(ints({2, 9, 0, 1, 2, 3}, {3, 2}));
  const auto [out, lse] = sel_attn(q, q, v, ranges);
  expect_near(out.flatten(), doubles({0, 0, 5.5, 1101 / 3.0}, {4}), 1e-12);
  expect_near(lse.flatten(), doubles({-kInf, -kInf, std::log(2.0), std::log(3.0)}, {4}));
}

TEST(SelAttn, NoRangesAtAllIsZero) {
  const at::Tensor q = at::ones({1, 3, 2, 2}).requires_grad_(true), k = at::ones({1, 3, 1, 2});
  const auto [out, lse] = sel_attn(q, k, k, at::zeros({1, 3, 1, 0, 2}, at::kInt));
  EXPECT_EQ(out.abs().sum().item<float>(), 0);
  out.sum().backward();
  EXPECT_EQ(q.grad().abs().sum().item<float>(), 0);
}

TEST(SelAttn, GatheringRowsEqualsMaskingThem) {
  at::manual_seed(3);
  const auto draw = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  const std::vector<at::Tensor> inputs{draw({2, 20, 4, 6}), draw({2, 23, 2, 6}),
                                       draw({2, 23, 2, 5})};
  const at::Tensor ranges = at::randint(-4, 26, {2, 20, 2, 3, 2}, at::kInt);
  const at::Tensor weight = draw({2, 20, 4, 5}), lse_weight = draw({2, 20, 4});
  std::vector<std::vector<at::Tensor>> results;
  for (const bool gathered : {false, true}) {
    std::vector<at::Tensor> x;
    for (const at::Tensor& input : inputs) x.push_back(input.clone().requires_grad_(true));
    const auto [out, lse] =
        gathered ? gathered_attention(x[0], x[1], x[2], ranges, 3, 1 / std::sqrt(6.0))
                 : sel_attn(x[0], x[1], x[2], ranges, 3);
    const at::Tensor finite_lse = at::where(lse.isfinite(), lse, at::zeros_like(lse));
    ((out * weight).sum() + (finite_lse * lse_weight).sum()).backward();
    results.push_back({out.detach(), lse.detach(), x[0].grad(), x[1].grad(), x[2].grad()});
  }
  for (size_t i = 0; i < results[0].size(); ++i) {
    expect_near(results[1][i], results[0][i], 1e-13);
  }
}

TEST(SelAttn, GatheringIgnoresNonFiniteTokensOutsideTheRow) {
  at::Tensor kv = at::ones({1, 6, 1, 2});
  kv[0][0].fill_(NAN);
  kv[0][5].fill_(INFINITY);
  at::Tensor ranges = at::zeros({1, 6, 1, 1, 2}, at::kInt);
  ranges.select(-1, 0).fill_(1);
  ranges.select(-1, 1).fill_(3);
  const auto [out, lse] = gathered_attention(at::ones({1, 6, 1, 2}), kv, kv, ranges, 0, 1.0);
  EXPECT_TRUE(at::equal(out.flatten(),
                        at::tensor({0., 0., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.}, at::kFloat)));
}

TEST(SelAttn, LongSequencesGather) {
  at::manual_seed(4);
  const int64_t s = 4100;  // more keys than are masked
  const at::Tensor q = at::randn({1, 3, 2, 4}, at::kDouble);
  const at::Tensor k = at::randn({1, s, 1, 4}, at::kDouble),
                   v = at::randn({1, s, 1, 4}, at::kDouble);
  const at::Tensor ranges = ints({0, 9, 4000, 4098}, {1, 1, 1, 2, 2}).expand({1, 3, 1, 2, 2});
  const at::Tensor out = sel_attn(q, k, v, ranges, s - 3).first;
  const auto chosen = [](const at::Tensor& x) {
    return at::cat({x.narrow(1, 0, 9), x.narrow(1, 4000, 98)}, 1).squeeze(2);  // [1, 107, 4]
  };
  const at::Tensor p =
      at::softmax(at::matmul(q.transpose(1, 2), chosen(k).transpose(1, 2)) / 2, -1);
  expect_near(out.transpose(1, 2), at::matmul(p, chosen(v)), 1e-13);
}

TEST(Attention, GradientsOfOutputAndLseByCentralDifferences) {
  at::manual_seed(2);
  const auto draw = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  const at::Tensor q = draw({2, 5, 4, 2}), k = draw({2, 5, 2, 2}), v = draw({2, 5, 2, 3});
  expect_gradients(
      [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
        const auto [out, lse] = win_attn(x[0], x[1], x[2], 3);
        return {out, lse};
      },
      {q.clone(), k.clone(), v.clone()});
  const at::Tensor ranges = at::randint(0, 6, {2, 5, 2, 2, 2}, at::kInt);
  expect_gradients(
      [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
        return {sel_attn(x[0], x[1], x[2], ranges).first};
      },
      {q.clone(), k.clone(), v.clone()});
  expect_gradients(
      [](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
        return {cmp_attn(x[0], x[1], x[2], blocks(2, 1)).out};
      },
      {q.clone(), k.narrow(1, 0, 4).contiguous(), v.narrow(1, 0, 4).contiguous()});
}

TEST(Attention, ExactData) {
  // Equal logits over 2^m keys: sums of small integers divided by a power of two are exact.
  const at::Tensor zero = at::zeros({1, 8, 1, 4}, at::kBFloat16);
  const at::Tensor v = at::arange(8, at::kBFloat16).reshape({1, 8, 1, 1});
  const at::Tensor out = win_attn(zero, zero, v, 4).first.to(at::kDouble).flatten();
  expect_near(out.narrow(0, 3, 5), doubles({1.5, 2.5, 3.5, 4.5, 5.5}, {5}), 0);
}

TEST(Attention, BadArgumentsAreNamed) {
  const at::Tensor q = at::randn({2, 6, 4, 3}), k = at::randn({2, 6, 2, 3});
  const at::Tensor ranges = at::zeros({2, 6, 2, 1, 2}, at::kInt);
  EXPECT_THAT(error_of([&] { win_attn(q[0], k, k, 2); }),
              HasSubstr("nsa::win_attn: q must be of rank 4 [B, S, Hq, dk], got shape [6, 4, 3]"));
  EXPECT_THAT(error_of([&] { win_attn(q, k, k, 0); }),
              HasSubstr("nsa::win_attn: window must be at least 1, got 0"));
  EXPECT_THAT(error_of([&] { win_attn(q, k, k, 2, 1); }),
              HasSubstr("nsa::win_attn: N must be at least 7, got 6"));
  EXPECT_THAT(error_of([&] {
                win_attn(q, k.expand({2, 6, 2, 3}).narrow(2, 0, 1).expand({2, 6, 3, 3}),
                         k.narrow(2, 0, 1).expand({2, 6, 3, 3}), 2);
              }),
              HasSubstr("Hq must be a multiple of Hkv = 3, got 4"));
  EXPECT_THAT(error_of([&] { sel_attn(q, k, k, ranges.to(at::kLong)); }),
              HasSubstr("nsa::sel_attn: ranges must be Int, got Long"));
  EXPECT_THAT(error_of([&] { sel_attn(q, k, k, ranges.narrow(1, 0, 5)); }),
              HasSubstr("ranges must be [B, S, Hkv, K, 2] = [2, 6, 2, any, 2], got shape "
                        "[2, 5, 2, 1, 2]"));
  EXPECT_THAT(error_of([&] { cmp_attn(q, k, k.to(at::kHalf), blocks(2, 1)); }),
              HasSubstr("nsa::cmp_attn: v_cmp must be Float like q, got Half"));
  EXPECT_THAT(error_of([&] { cmp_attn(q, k, k, blocks(2, 1), -1); }),
              HasSubstr("nsa::cmp_attn: first_position must be at least 0, got -1"));
}

}  // namespace
}  // namespace nsa
