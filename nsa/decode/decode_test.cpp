// Caches, the decode step and the modes: contracts. Comparison with the oracle in all types stands
// in suites/conformance.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "nsa/core/test_util.h"
#include "nsa/decode/modes.h"
#include "nsa/decode/sequential.h"
#include "nsa/layer/nsa_inputs.h"
#include "nsa/layer/random_inputs.h"

namespace nsa {
namespace {

using ::testing::HasSubstr;

[[maybe_unused]] const bool kOneThread = (at::set_num_threads(1), true);
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

NsaConfig small() {
  NsaConfig c;
  c.num_heads = 4, c.num_kv_heads = 2, c.qk_head_dim = 8, c.v_head_dim = 6;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 16, c.top_n = 3, c.window = 12;
  return c;
}

/// The same within 1e-12 of the largest value; ids equal.
void expect_same(const NsaOutputs& have, const NsaOutputs& want) {
  ASSERT_TRUE(at::equal(have.block_idx, want.block_idx));
  ASSERT_TRUE(at::equal(have.ranges, want.ranges));
  for (const auto member :
       {&NsaOutputs::q_rot, &NsaOutputs::o_cmp, &NsaOutputs::o_sel, &NsaOutputs::o_win,
        &NsaOutputs::o, &NsaOutputs::lse_cmp, &NsaOutputs::lse_sel, &NsaOutputs::lse_win,
        &NsaOutputs::scores, &NsaOutputs::gates}) {
    expect_near(have.*member, want.*member, 1e-12);
  }
}

/// The formula of spec/nsa.md section 3, to compare counts with.
at::Tensor expected_reads(const NsaConfig& c, int64_t batch, int64_t num_tokens) {
  at::Tensor reads = at::zeros({batch, num_tokens, c.num_kv_heads, 3}, at::kLong);
  for (int64_t t = 0; t < num_tokens; ++t) {
    const int64_t block = t / c.sel_block_size;
    reads.select(1, t).select(2, 0).fill_(c.num_compressed(t + 1));
    reads.select(1, t).select(2, 1).fill_((std::min(c.top_n, block + 1) - 1) * c.sel_block_size +
                                          t - block * c.sel_block_size + 1);
    reads.select(1, t).select(2, 2).fill_(std::min(c.window, t + 1));
  }
  return reads;
}

TEST(Decode, PrefillThenStepsEqualsPrefillOfAll) {
  const NsaConfig c = small();
  at::manual_seed(1);
  const NsaInputs in = random_inputs(c, 1, 61, at::kDouble);
  const NsaOutputs want = nsa_attention(in, c);
  for (const int64_t s : {0, 1, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 37, 61}) {
    SCOPED_TRACE("prefill " + std::to_string(s));
    const DecodeOutputs have = decode_attention(in, c, {}, {s});
    expect_same(have, want);
    expect_near(have.k_cmp, want.k_cmp, 1e-13);
    expect_near(have.v_cmp, want.v_cmp, 1e-13);
    EXPECT_TRUE(at::equal(have.reads, expected_reads(c, 1, 61)));
  }
}

TEST(Decode, EveryPhiRopeAndGate) {
  at::manual_seed(2);
  for (const Phi phi : {Phi::kMean, Phi::kConv, Phi::kMlp}) {
    for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kBlockStart, RopeMode::kNone}) {
      NsaConfig c = small();
      c.phi = phi, c.rope = rope;
      c.gate = std::array{GateActivation::kNone, GateActivation::kSoftmax,
                          GateActivation::kSigmoid}[static_cast<size_t>(rope)];
      const NsaInputs in = random_inputs(c, 2, 43, at::kDouble);
      const NsaOutputs want = nsa_attention(in, c);
      SCOPED_TRACE(to_string(phi) + " " + to_string(rope));
      expect_same(decode_attention(in, c, {}, {5, 14}), want);
      expect_same(run_attention(Mode::kSequential, in, c), want);
    }
  }
}

}  // namespace
}  // namespace nsa
