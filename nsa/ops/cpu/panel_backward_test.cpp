// Gradients of the CPU kernels, on every instruction set that the processor has, against the oracle
// and, through lse, against plain fp64 operators.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "nsa/ops/cpu/inner_loops/kernel_table.h"
#include "nsa/ops/cpu/test_calls.h"

namespace nsa::cpu {
namespace {

/// Rows of gradients in low precision are measured against this part of the tensor's largest value.
constexpr double kGradientFloor = 0.25;

KeyMask window_of(int64_t size) { return {KeyMask::kWindow, 0, size, 1, {}}; }
KeyMask blocks_of(int64_t size, int64_t stride) {
  return {KeyMask::kVisibleBlocks, 0, size, stride, {}};
}
KeyMask ranges_of(const CallSizes& s, int64_t width) {
  return {KeyMask::kRanges, 0, 0, 1,
          at::randint(-4, s.tokens + 6, {s.batch, s.tokens, s.kv_heads, width, 2}, at::kInt)};
}

PanelGradients gradients(const Call& call, const at::Tensor& d_out, const at::Tensor& d_lse = {}) {
  const PanelAttention forward = attend_panels(call.q, call.k, call.v, call.mask, call.scale());
  return attend_panels_backward(call.q, call.k, call.v, forward.softmax, d_out, d_lse, call.mask,
                                call.scale());
}

/// Gradients of the plain operators in `type`.
PanelGradients plain_gradients(const Call& call, const at::Tensor& d_out, const at::Tensor& d_lse,
                               at::ScalarType type) {
  Call own = call;
  for (at::Tensor* x : {&own.q, &own.k, &own.v}) *x = x->to(type).clone().requires_grad_();
  const auto [out, lse] = plain_attention(own, type);
  at::Tensor sum = out.mul(d_out.to(type)).sum();
  if (d_lse.defined())
    sum = sum + at::where(lse.isfinite(), lse, at::zeros_like(lse)).mul(d_lse.to(type)).sum();
  const auto g = torch::autograd::grad({sum}, {own.q, own.k, own.v});
  return {g[0], g[1], g[2]};
}

void expect_gradients(const PanelGradients& have, const PanelGradients& plain,
                      const PanelGradients& want) {
  expect_as_exact_as("d_q", have.q, plain.q, want.q, kGradientFloor);
  expect_as_exact_as("d_k", have.k, plain.k, want.k, kGradientFloor);
  expect_as_exact_as("d_v", have.v, plain.v, want.v, kGradientFloor);
}

/// The largest share of its allowance that a gradient of `call` takes.
double share_of_gradients(const Call& call) {
  const at::Tensor d_out =
      at::randn({call.q.size(0), call.q.size(1), call.q.size(2), call.v.size(3)}, call.q.options());
  const reference::AttentionGradients want =
      reference::attention_backward("test", exact(call.q), exact(call.k), exact(call.v),
                                    attended_by(call.mask, call.k.size(1)), exact(d_out));
  const PanelGradients have = gradients(call, d_out),
                       plain = plain_gradients(call, d_out, {}, at::kFloat);
  const auto share = [&](const at::Tensor& of, const at::Tensor& plainly, const auto& wanted) {
    EXPECT_EQ(of.sizes(), plainly.sizes());
    return share_of_allowance(of, plainly.to(call.q.scalar_type()), to_aten(wanted, at::kDouble),
                              kGradientFloor);
  };
  const at::Tensor shares =
      at::tensor({share(have.q, plain.q, want.q), share(have.k, plain.k, want.k),
                  share(have.v, plain.v, want.v)},
                 at::kDouble);
  return shares.max().item<double>();  // NaN if one is
}

/// Both sides of the allowance are samples: an excess of at most twice of it counts if a second
/// draw exceeds, too (docs/tolerances.md, Second draw).
void compare_gradients(const Call& call) {
  double share = share_of_gradients(call);
  if (share > 1 && share <= 2)
    share = share_of_gradients(
        {at::randn_like(call.q), at::randn_like(call.k), at::randn_like(call.v), call.mask});
  EXPECT_LE(share, 1);
}

class PanelBackward : public ::testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam()))
      GTEST_SKIP() << "this processor has no " << to_string(GetParam());
    at::manual_seed(13);
  }
  const InstructionSetLimit limit_{GetParam()};
};

TEST_P(PanelBackward, AgreesWithTheOracle) {
  for (const CallSizes& s : {CallSizes{2, 70, 1, 6, 64, 64}, CallSizes{1, 67, 1, 1, 8, 6},
                             CallSizes{1, 131, 2, 3, 20, 33}, CallSizes{2, 1, 2, 2, 16, 16},
                             CallSizes{1, 9, 1, 100, 7, 3}}) {
    SCOPED_TRACE("S " + std::to_string(s.tokens) + " G " + std::to_string(s.group));
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const int64_t w : {20, 500})
        compare_gradients(random_call(s, s.tokens, window_of(w), type));
      compare_gradients(random_call(s, s.tokens / 4, blocks_of(8, 4), type));
      compare_gradients(random_call(s, s.tokens, ranges_of(s, 3), type));
    }
  }
}

TEST_P(PanelBackward, ThroughLse) {
  const CallSizes s{2, 150, 2, 3, 16, 24};
  for (const KeyMask& mask : {window_of(70), blocks_of(4, 1), ranges_of(s, 3)}) {
    const Call call = random_call(s, s.tokens, mask);
    const at::Tensor d_out = at::randn({2, 150, 6, 24}), d_lse = at::randn({2, 150, 6});
    expect_gradients(gradients(call, d_out, d_lse), plain_gradients(call, d_out, d_lse, at::kFloat),
                     plain_gradients(call, d_out, d_lse, at::kDouble));
  }
}

/// Queries enough for several ranges of the sums.
TEST_P(PanelBackward, ManyRangesOfQueries) {
  const CallSizes s{1, 900, 1, 8, 16, 16};
  for (const KeyMask& mask : {window_of(300), blocks_of(8, 4), ranges_of(s, 1)}) {
    const Call call = random_call(s, s.tokens, mask);
    const at::Tensor d_out = at::randn({1, 900, 8, 16});
    expect_gradients(gradients(call, d_out), plain_gradients(call, d_out, {}, at::kFloat),
                     plain_gradients(call, d_out, {}, at::kDouble));
  }
}

TEST_P(PanelBackward, NonFiniteTokensStayWithWhatAttendsThem) {
  const CallSizes s{1, 200, 1, 3, 16, 16};
  const KeyMask mask = window_of(30);
  const Call call = random_call(s, s.tokens, mask);
  const at::Tensor d_out = at::randn({1, 200, 3, 16});
  const PanelGradients before = gradients(call, d_out);
  for (int which = 0; which < 3; ++which) {
    Call hit = call;
    at::Tensor& x = which == 0 ? hit.q : which == 1 ? hit.k : hit.v;
    x = x.clone();
    x[0][100].fill_(std::numeric_limits<float>::quiet_NaN());
    const PanelGradients after = gradients(hit, d_out);
    const auto changed = [](const at::Tensor& a, const at::Tensor& b) {
      return a.ne(b).flatten(2).any(-1).flatten();
    };
    // Token 100 as a key reaches queries 100..129, which reach keys 71..129.
    const int64_t first_query = 100, queries = which == 0 ? 1 : 30;
    at::Tensor outside = at::ones({200}, at::kBool);
    outside.narrow(0, first_query, queries).fill_(false);
    EXPECT_FALSE(changed(before.q, after.q).logical_and(outside).any().item<bool>()) << which;
    outside.fill_(true).narrow(0, 71, which == 0 ? 30 : 59).fill_(false);
    EXPECT_FALSE(changed(before.k, after.k).logical_and(outside).any().item<bool>()) << which;
    EXPECT_FALSE(changed(before.v, after.v).logical_and(outside).any().item<bool>()) << which;
    EXPECT_TRUE(after.q.isnan().any().item<bool>()) << which;
  }
}

TEST_P(PanelBackward, EmptyRowsHaveNoGradient) {
  const CallSizes s{1, 9, 1, 2, 16, 16};
  Call call = random_call(s, s.tokens, ranges_of(s, 2));
  call.mask.ranges.zero_();
  const PanelGradients g = gradients(call, at::randn({1, 9, 2, 16}), at::randn({1, 9, 2}));
  for (const at::Tensor& x : {g.q, g.k, g.v}) EXPECT_TRUE(x.eq(0).all().item<bool>());
  const Call no_keys = random_call(s, 0, blocks_of(32, 16));
  EXPECT_TRUE(gradients(no_keys, at::randn({1, 9, 2, 16})).q.eq(0).all().item<bool>());
}

TEST_P(PanelBackward, StridesAndThreadsDoNotChangeBits) {
  const CallSizes s{2, 700, 2, 3, 16, 24};
  for (const KeyMask& mask : {window_of(70), ranges_of(s, 4)}) {
    const Call call = random_call(s, s.tokens, mask);
    const at::Tensor d_out = at::randn({2, 700, 6, 24});
    const PanelGradients want = gradients(call, d_out);
    const auto turned = [](const at::Tensor& x) {
      return x.transpose(1, 3).contiguous().transpose(1, 3);
    };
    const int threads = at::get_num_threads();
    for (int count = 1; count <= 8; ++count) {
      at::set_num_threads(count);
      const PanelGradients have =
          gradients({turned(call.q), turned(call.k), turned(call.v), mask}, turned(d_out));
      EXPECT_TRUE(at::equal(have.q, want.q)) << count << " threads";
      EXPECT_TRUE(at::equal(have.k, want.k)) << count << " threads";
      EXPECT_TRUE(at::equal(have.v, want.v)) << count << " threads";
    }
    at::set_num_threads(threads);
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PanelBackward,
                         ::testing::Values(InstructionSet::kBaseline, InstructionSet::kAvx2,
                                           InstructionSet::kAvx512),
                         [](const auto& set) { return to_string(set.param); });

}  // namespace
}  // namespace nsa::cpu
