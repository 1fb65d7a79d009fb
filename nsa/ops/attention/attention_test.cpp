// The three branches: hand-computed rows, gradients by central differences, arguments.
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>

#include "nsa/ops/common/test_util.h"
#include "nsa/ops/compressed/cmp_attn.h"
#include "nsa/ops/selected/sel_attn.h"
#include "nsa/ops/window/win_attn.h"

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

/// dk = 4 and q.k = 4 ln 3 for the second key, 0 for the first: a scale of 1/4 makes that ln 3, of
/// 1/8 its half.
struct TwoKeys {
  at::Tensor q = at::ones({1, 2, 1, 4}, at::kDouble);
  at::Tensor k = doubles({0, 0, 0, 0, 1, 1, 1, 1}, {1, 2, 1, 4}) * std::log(3.0);
  at::Tensor v = doubles({4, 8}, {1, 2, 1, 1});
  at::Tensor ranges = ints({0, 2, 0, 2}, {1, 2, 1, 1, 2});
};

TEST(Scale, MultipliesTheLogitsOfItsBranch) {
  const TwoKeys x;
  for (const auto& [scale, weight] : {std::pair{0.25, 3.0}, std::pair{0.125, std::sqrt(3.0)}}) {
    const at::Tensor out = doubles({4, (4 + 8 * weight) / (1 + weight)}, {2});
    const at::Tensor lse = doubles({0, std::log(1 + weight)}, {2});
    NsaConfig c = blocks(1, 1);
    c.scale_cmp = scale;
    const CmpAttnResult cmp = cmp_attn(x.q, x.k, x.v, c);
    expect_near(cmp.out.flatten(), out);
    expect_near(cmp.lse.flatten(), lse);
    const at::Tensor probs = doubles({1, 0, 1 / (1 + weight), weight / (1 + weight)}, {4});
    expect_near(cmp.group_probs.flatten(), probs);
    expect_near(cmp_probs(x.q, x.k, c).flatten(), probs);
    const auto win = win_attn(x.q, x.k, x.v, 2, 0, {}, scale);
    expect_near(win.first.flatten(), out);
    expect_near(win.second.flatten(), lse);
    for (const SelBackend backend : {SelBackend::kGather, SelBackend::kPacked, SelBackend::kVarlen,
                                     SelBackend::kMasked, SelBackend::kFused}) {
      const auto sel = sel_attn(x.q, x.k, x.v, x.ranges, 0, {.backend = backend}, scale);
      expect_near(sel.first.flatten(), out);
      expect_near(sel.second.flatten(), lse);
    }
  }
}

TEST(Scale, MustBePositiveAndFinite) {
  const TwoKeys x;
  for (const double bad : {0.0, -1.0, kInf, std::nan("")}) {
    EXPECT_THAT(error_of([&] { win_attn(x.q, x.k, x.v, 2, 0, {}, bad); }),
                HasSubstr("nsa::win_attn: scale must be positive and finite, got "));
    EXPECT_THAT(error_of([&] { sel_attn(x.q, x.k, x.v, x.ranges, 0, {}, bad); }),
                HasSubstr("nsa::sel_attn: scale must be positive and finite, got "));
    NsaConfig c = blocks(1, 1);
    c.scale_cmp = bad;
    EXPECT_THAT(error_of([&] { cmp_attn(x.q, x.k, x.v, c); }),
                HasSubstr("nsa::cmp_attn: scale must be positive and finite, got "));
    EXPECT_THAT(error_of([&] { cmp_probs(x.q, x.k, c); }),
                HasSubstr("nsa::cmp_probs: scale must be positive and finite, got "));
  }
}

TEST(WinAttn, AWindowOfNoKeysIsExactlyZeroInEveryBackend) {
  const at::Tensor q = at::ones({2, 3, 4, 2}, at::kDouble).requires_grad_(true);
  const at::Tensor k = at::full({2, 3, 2, 2}, std::nan(""), at::kDouble).requires_grad_(true);
  const at::Tensor v = at::full({2, 3, 2, 5}, std::nan(""), at::kDouble).requires_grad_(true);
  for (const BranchBackend backend :
       {BranchBackend::kPlain, BranchBackend::kFlash, BranchBackend::kFused}) {
    const auto [out, lse] = win_attn(q, k, v, 0, 0, {backend, /*strict=*/true});
    EXPECT_TRUE(at::equal(out, at::zeros({2, 3, 4, 5}, at::kDouble)));
    EXPECT_TRUE(at::equal(lse, at::full({2, 3, 4}, -kInf, at::kDouble)));
    for (const at::Tensor& gradient :
         torch::autograd::grad({out}, {q, k, v}, {at::ones_like(out)})) {
      ASSERT_TRUE(gradient.defined());
      EXPECT_TRUE(gradient.eq(0).all().item<bool>());
    }
  }
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

/// Equal keys have equal probabilities to the last bit, however many they are: where the definition
/// has a tie the selection sees one.
TEST(CmpAttn, EqualKeysAreTies) {
  at::manual_seed(3);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const int64_t dk : {4, 6, 14, 64})
      for (int64_t n = 1; n <= 53; ++n) {
        const at::Tensor q = at::randn({2, 31, 4, dk}, type);
        const at::Tensor k = at::randn({2, 1, 2, dk}, type).expand({2, n, 2, dk});
        const at::Tensor p = cmp_probs(q, k, blocks(1, 1), /*first_position=*/n);
        EXPECT_TRUE(p.eq(p.narrow(-1, 0, 1)).all().item<bool>()) << type << " " << dk << " " << n;
      }
}

/// fp32 is summed in fp64 and rounded once, so no library's order of sums shows in the result.
TEST(Attention, Fp32IsFp64RoundedOnce) {
  at::manual_seed(4);
  const int64_t num_tokens = 37;
  const auto make = [&](int64_t heads, int64_t dim) {
    return at::randn({2, num_tokens, heads, dim}, at::kFloat).mul_(4).requires_grad_();
  };
  const std::vector<at::Tensor> given = {make(4, 14), make(2, 14), make(2, 9)};  // q, k, v
  const at::Tensor start = at::arange(num_tokens, at::kInt).floor_divide(2);
  const at::Tensor ranges = at::stack({start, start + 7}, -1)
                                .view({1, num_tokens, 1, 1, 2})
                                .expand({2, num_tokens, 2, 1, 2});
  const auto cmp = [](const std::vector<at::Tensor>& in) {
    return cmp_attn(in[0], in[1], in[2], blocks(3, 1)).out;
  };
  const auto win = [](const std::vector<at::Tensor>& in) {
    return win_attn(in[0], in[1], in[2], 11).first;
  };
  const auto sel = [&ranges](SelBackend backend) {
    return [&ranges, backend](const std::vector<at::Tensor>& in) {
      return sel_attn(in[0], in[1], in[2], ranges, 0, {.backend = backend}).first;
    };
  };
  using Branch = std::function<at::Tensor(const std::vector<at::Tensor>&)>;
  const std::vector<Branch> branches = {cmp,
                                        win,
                                        sel(SelBackend::kGather),
                                        sel(SelBackend::kPacked),
                                        sel(SelBackend::kVarlen),
                                        sel(SelBackend::kMasked)};
  for (size_t i = 0; i < branches.size(); ++i) {
    const at::Tensor out = branches[i](given);
    std::vector<at::Tensor> wide;
    for (const at::Tensor& x : given) wide.push_back(x.detach().to(at::kDouble).requires_grad_());
    const at::Tensor exact = branches[i](wide);
    EXPECT_TRUE(at::equal(out, exact.to(at::kFloat))) << "branch " << i;
    const at::Tensor d_out = at::randn_like(out);
    const auto grads = torch::autograd::grad({out}, given, {d_out});
    const auto exact_grads = torch::autograd::grad({exact}, wide, {d_out.to(at::kDouble)});
    for (size_t g = 0; g < grads.size(); ++g)
      EXPECT_TRUE(at::equal(grads[g], exact_grads[g].to(at::kFloat))) << "branch " << i << " " << g;
  }
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
  EXPECT_THAT(error_of([&] { win_attn(q, k, k, -1); }),
              HasSubstr("nsa::win_attn: window must be at least 0, got -1"));
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
