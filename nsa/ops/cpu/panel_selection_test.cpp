// The compressed branch with the choice of blocks, against the oracle's stages.
#include <ATen/Parallel.h>

#include "nsa/ops/cpu/inner_loops/kernel_table.h"
#include "nsa/ops/cpu/test_calls.h"
#include "nsa/ops/select/ranges.h"
#include "nsa/ops/select/scores.h"
#include "nsa/ops/select/top_n.h"

namespace nsa::cpu {
namespace {

NsaConfig config_of(const CallSizes& s) {
  NsaConfig c;
  c.num_heads = s.kv_heads * s.group, c.num_kv_heads = s.kv_heads;
  c.qk_head_dim = s.dk, c.v_head_dim = s.dv;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 16, c.top_n = 4;
  return c;
}

/// The oracle's scores [B, S, Hkv, blocks] of a call.
at::Tensor exact_scores(const Call& call, const NsaConfig& c) {
  reference::Config r;
  r.num_heads = c.num_heads, r.num_kv_heads = c.num_kv_heads;
  r.block_size = c.block_size, r.block_stride = c.block_stride;
  r.sel_block_size = c.sel_block_size;
  const reference::Attention attention =
      reference::attention("test", exact(call.q), exact(call.k), exact(call.v),
                           attended_by(call.mask, call.k.size(1)), /*scale=*/{}, /*keep_p=*/true);
  return to_aten(reference::group_scores(r, attention.p), at::kDouble);
}

/// The selection follows the rule for scores that differ from the oracle's by `tolerance` at most.
void expect_selected(const at::Tensor& block_idx, const at::Tensor& scores, const NsaConfig& c,
                     double tolerance) {
  const at::Tensor want = select_blocks(scores, at::arange(scores.size(1)), c);
  EXPECT_TRUE(at::equal(block_idx.ge(0).sum(-1), want.ge(0).sum(-1)));
  const auto sum = [&](const at::Tensor& ids) {  // of the chosen scores
    return scores.gather(-1, ids.clamp_min(0).to(at::kLong)).masked_fill(ids.lt(0), 0).sum(-1);
  };
  EXPECT_LE((sum(want) - sum(block_idx)).abs().max().item<double>(), tolerance);
  EXPECT_GE(block_idx.eq(want).to(at::kDouble).mean().item<double>(), 0.99);
}

void compare(const CallSizes& s, const NsaConfig& c, at::ScalarType type) {
  const KeyMask mask = compressed_mask(c);
  const Call call = random_call(s, c.num_compressed(s.tokens), mask, type);
  const PanelSelection have = attend_and_select(call.q, call.k, call.v, c, 0, call.scale());
  const reference::Attention want = reference::attention(
      "test", exact(call.q), exact(call.k), exact(call.v), attended_by(mask, call.k.size(1)));
  const auto [out, lse] = plain_attention(call);
  expect_as_exact_as("out", have.attention.out, out, to_aten(want.o, at::kDouble));
  expect_lse(call, have.attention.lse, lse, to_aten(want.lse, at::kDouble));
  expect_selected(have.block_idx, exact_scores(call, c), c, 1e-4);
  EXPECT_TRUE(at::equal(have.ranges, block_ranges(RangesVersion::kV1, have.block_idx,
                                                  at::arange(s.tokens), c.sel_block_size)));
}

class PanelSelectionTest : public ::testing::TestWithParam<InstructionSet> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam()))
      GTEST_SKIP() << "this processor has no " << to_string(GetParam());
    at::manual_seed(11);
  }
  const InstructionSetLimit limit_{GetParam()};
};

TEST_P(PanelSelectionTest, AgreesWithTheOracle) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const int64_t tokens : {1, 7, 8, 9, 16, 131, 400}) {
      SCOPED_TRACE("S " + std::to_string(tokens));
      const CallSizes s{2, tokens, 2, 3, 16, 24};
      compare(s, config_of(s), type);
    }
  }
}

TEST_P(PanelSelectionTest, UnusualSizes) {
  CallSizes s{1, 203, 1, 5, 7, 5};
  NsaConfig c = config_of(s);
  c.block_size = 12, c.sel_block_size = 20, c.top_n = 5, c.num_initial = 2, c.num_local = 1;
  compare(s, c, at::kFloat);
  c.block_size = c.block_stride = c.sel_block_size = 1, c.top_n = 7, c.num_initial = 0;
  compare(s, c, at::kFloat);
  c.block_stride = 1, c.block_size = 3, c.sel_block_size = 5, c.top_n = 100;
  compare(s, c, at::kFloat);
  c.block_size = 4, c.block_stride = 2, c.sel_block_size = 8, c.top_n = 3;  // forced blocks only
  c.num_initial = 1, c.num_local = 2;
  compare(s, c, at::kFloat);
}

/// Equal keys are ties, which go to the lower index; the last two blocks and the first are forced.
TEST_P(PanelSelectionTest, TiesGoToTheLowerIndex) {
  const CallSizes s{1, 300, 1, 2, 16, 16};
  const NsaConfig c = config_of(s);
  Call call = random_call(s, c.num_compressed(s.tokens), compressed_mask(c));
  call.k = call.k.narrow(1, 0, 1).expand(call.k.sizes());
  const at::Tensor ids = attend_and_select(call.q, call.k, call.v, c, 0, call.scale()).block_idx;
  // Block 1 has the full pattern 1, 2, 2, 2, 1 of overlaps, as have all behind it up to the edge.
  for (const int64_t t : {100, 160, 299}) {
    const auto last = static_cast<int>(t / c.sel_block_size);
    EXPECT_TRUE(at::equal(ids[0][t][0], at::tensor({0, 1, last - 1, last}, at::kInt))) << t;
  }
}

/// A NaN key makes every score of the rows that see it NaN: places go to the lowest indices.
TEST_P(PanelSelectionTest, NaNScoresRankLastAndStayInTheirRows) {
  const CallSizes s{1, 300, 1, 2, 16, 16};
  const NsaConfig c = config_of(s);
  Call call = random_call(s, c.num_compressed(s.tokens), compressed_mask(c));
  const PanelSelection before = attend_and_select(call.q, call.k, call.v, c, 0, call.scale());
  call.k[0][40].fill_(std::numeric_limits<float>::quiet_NaN());  // visible from 40 * 4 + 7 on
  call.v[0][30].fill_(std::numeric_limits<float>::infinity());   // visible from 30 * 4 + 7 on
  const PanelSelection after = attend_and_select(call.q, call.k, call.v, c, 0, call.scale());
  EXPECT_TRUE(
      at::equal(after.attention.out.narrow(1, 0, 127), before.attention.out.narrow(1, 0, 127)));
  EXPECT_FALSE(after.attention.out.narrow(1, 127, 40).isfinite().any().item<bool>());
  EXPECT_TRUE(at::equal(after.block_idx.narrow(1, 0, 167), before.block_idx.narrow(1, 0, 167)));
  EXPECT_TRUE(after.attention.out.narrow(1, 167, 133).isnan().all().item<bool>());
  EXPECT_TRUE(at::equal(after.block_idx[0][299][0], at::tensor({0, 1, 17, 18}, at::kInt)));
}

TEST_P(PanelSelectionTest, ThreadsAndPositionsDoNotChangeBits) {
  const CallSizes s{2, 333, 2, 3, 16, 16};
  const NsaConfig c = config_of(s);
  const Call call = random_call(s, c.num_compressed(s.tokens), compressed_mask(c));
  const PanelSelection want = attend_and_select(call.q, call.k, call.v, c, 0, call.scale());
  const int threads = at::get_num_threads();
  for (int count = 1; count <= 8; ++count) {
    at::set_num_threads(count);
    const PanelSelection have = attend_and_select(call.q, call.k, call.v, c, 0, call.scale());
    EXPECT_TRUE(at::equal(have.attention.out, want.attention.out)) << count << " threads";
    EXPECT_TRUE(at::equal(have.block_idx, want.block_idx)) << count << " threads";
  }
  at::set_num_threads(threads);
  const PanelSelection tail =
      attend_and_select(call.q.narrow(1, 200, 133), call.k, call.v, c, 200, call.scale());
  EXPECT_TRUE(at::equal(tail.block_idx, want.block_idx.narrow(1, 200, 133)));
  EXPECT_TRUE(at::equal(tail.ranges, want.ranges.narrow(1, 200, 133)));
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, PanelSelectionTest,
                         ::testing::Values(InstructionSet::kBaseline, InstructionSet::kAvx2,
                                           InstructionSet::kAvx512),
                         [](const auto& set) { return to_string(set.param); });

}  // namespace
}  // namespace nsa::cpu
