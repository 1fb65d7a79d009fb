// The forward pass of the CPU kernels, on every instruction set that the processor has, against the
// oracle; rows that meet NaN and infinities; threads.
#include <ATen/Parallel.h>

#include "nsa/ops/cpu/inner_loops/kernel_table.h"
#include "nsa/ops/cpu/test_calls.h"

namespace nsa::cpu {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

KeyMask window(int64_t size, int64_t first = 0) { return {KeyMask::kWindow, first, size, 1, {}}; }
KeyMask blocks(int64_t size, int64_t stride) {
  return {KeyMask::kVisibleBlocks, 0, size, stride, {}};
}
/// Intervals of any kind: empty, reversed, overlapping, unordered, negative, beyond t.
KeyMask random_ranges(const CallSizes& s, int64_t width) {
  return {KeyMask::kRanges, 0, 0, 1,
          at::randint(-4, s.tokens + 6, {s.batch, s.tokens, s.kv_heads, width, 2}, at::kInt)};
}

void compare(const Call& call) {
  const PanelAttention have = attend_panels(call.q, call.k, call.v, call.mask, call.scale());
  const reference::Attention want = reference::attention(
      "test", exact(call.q), exact(call.k), exact(call.v), attended_by(call.mask, call.k.size(1)));
  const auto [out, lse] = plain_attention(call);
  expect_as_exact_as("out", have.out, out, to_aten(want.o, at::kDouble));
  expect_lse(call, have.lse, lse, to_aten(want.lse, at::kDouble));
}

class PanelForward : public ::testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam()))
      GTEST_SKIP() << "this processor has no " << to_string(GetParam());
    at::manual_seed(7);
  }
  const InstructionSetLimit limit_{GetParam()};
};

TEST_P(PanelForward, AgreesWithTheOracle) {
  const std::vector<CallSizes> sizes = {{2, 150, 2, 6, 64, 64},  {1, 67, 1, 1, 8, 6},
                                        {1, 131, 2, 3, 20, 33},  {2, 1, 2, 2, 16, 16},
                                        {1, 30, 1, 4, 192, 128}, {1, 9, 1, 100, 7, 1}};
  for (const CallSizes& s : sizes) {
    SCOPED_TRACE("S " + std::to_string(s.tokens) + " G " + std::to_string(s.group));
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const int64_t w : {1, 20, 64, 500}) compare(random_call(s, s.tokens, window(w), type));
      compare(random_call(s, s.tokens / 4, blocks(8, 4), type));
      compare(random_call(s, s.tokens, random_ranges(s, 3), type));
    }
  }
}

TEST_P(PanelForward, QueriesMayStartAtAnyPosition) {
  const CallSizes s{1, 37, 2, 3, 16, 16};
  compare(random_call(s, 150, window(50, /*first=*/113)));
}

TEST_P(PanelForward, EmptyRowsAreZero) {
  const CallSizes s{1, 9, 1, 2, 16, 16};
  Call call = random_call(s, s.tokens, random_ranges(s, 2));
  call.mask.ranges.zero_();
  const PanelAttention r = attend_panels(call.q, call.k, call.v, call.mask, call.scale());
  EXPECT_TRUE(r.out.eq(0).all().item<bool>());
  EXPECT_TRUE(r.lse.eq(-kInf).all().item<bool>());
}

TEST_P(PanelForward, NonFiniteKeysAndValuesStayInTheirRows) {
  const CallSizes s{1, 200, 1, 3, 16, 16};
  for (const KeyMask& mask : {window(30), blocks(4, 1), random_ranges(s, 3)}) {
    const Call call = random_call(s, s.tokens, mask);
    const PanelAttention before = attend_panels(call.q, call.k, call.v, mask, call.scale());
    const at::Tensor reached =
        mask.allowed(0, s.tokens, {0, s.tokens}, at::kCPU).select(-1, 100).flatten();
    for (const double bad : {kNan, kInf, -kInf}) {
      for (const bool in_values : {false, true}) {
        Call hit = call;
        at::Tensor& x = in_values ? hit.v : hit.k;
        x = x.clone();
        x[0][100].fill_(bad);
        const PanelAttention after = attend_panels(hit.q, hit.k, hit.v, mask, call.scale());
        const at::Tensor changed = after.out.ne(before.out).flatten(2).any(-1).flatten();
        EXPECT_TRUE(changed.logical_and(reached.logical_not()).any().item<bool>() == false);
        if (in_values) {
          EXPECT_TRUE(changed.eq(reached).all().item<bool>());
          EXPECT_FALSE(after.out.isfinite().all().item<bool>());
        }
      }
    }
  }
}

TEST_P(PanelForward, RowsOfInfiniteLogitsAreNaN) {
  const CallSizes s{1, 5, 1, 1, 16, 16};
  Call call = random_call(s, s.tokens, window(5));
  call.q.fill_(1);
  for (const double logit : {kInf, -kInf}) {
    call.k.fill_(logit);
    const PanelAttention r = attend_panels(call.q, call.k, call.v, call.mask, call.scale());
    EXPECT_TRUE(r.out.isnan().all().item<bool>());
    EXPECT_TRUE(r.lse.isnan().all().item<bool>());
  }
}

TEST_P(PanelForward, HugeLogitsAndExactData) {
  const CallSizes s{1, 8, 1, 1, 16, 16};
  Call call = random_call(s, 8, window(4));
  call.q.fill_(1e4);
  call.k.fill_(1e4);
  call.v.copy_(at::arange(8).view({1, 8, 1, 1}));
  const at::Tensor out =
      attend_panels(call.q, call.k, call.v, call.mask, call.scale()).out.select(3, 0).flatten();
  EXPECT_TRUE(at::equal(out.narrow(0, 3, 5), at::tensor({1.5F, 2.5F, 3.5F, 4.5F, 5.5F})));
}

TEST_P(PanelForward, StridesAndThreadsDoNotChangeBits) {
  const CallSizes s{2, 300, 2, 3, 16, 24};
  for (const KeyMask& mask : {window(70), random_ranges(s, 4)}) {
    const Call call = random_call(s, s.tokens, mask);
    const PanelAttention want = attend_panels(call.q, call.k, call.v, mask, call.scale());
    const auto turned = [](const at::Tensor& x) {
      return x.transpose(1, 3).contiguous().transpose(1, 3);
    };
    const int threads = at::get_num_threads();
    for (int count = 1; count <= 8; ++count) {
      at::set_num_threads(count);
      const PanelAttention have =
          attend_panels(turned(call.q), turned(call.k), turned(call.v), mask, call.scale());
      EXPECT_TRUE(at::equal(have.out, want.out)) << count << " threads";
      EXPECT_TRUE(at::equal(have.lse, want.lse)) << count << " threads";
    }
    at::set_num_threads(threads);
  }
}

TEST_P(PanelForward, NothingToComputeGivesEmptyTensors) {
  for (const CallSizes& s : {CallSizes{0, 4, 2, 2, 16, 8}, CallSizes{2, 0, 2, 2, 16, 8}}) {
    const Call call = random_call(s, s.tokens, window(3));
    const PanelAttention r = attend_panels(call.q, call.k, call.v, call.mask, call.scale());
    EXPECT_EQ(r.out.sizes(), at::IntArrayRef({s.batch, s.tokens, 4, 8}));
    EXPECT_EQ(r.lse.sizes(), at::IntArrayRef({s.batch, s.tokens, 4}));
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PanelForward,
                         ::testing::Values(InstructionSet::kBaseline, InstructionSet::kAvx2,
                                           InstructionSet::kAvx512),
                         [](const auto& set) { return to_string(set.param); });

}  // namespace
}  // namespace nsa::cpu
