// The whole layer, and the operator that other programs call, in fp64, forward and backward,
// against the oracle (nsa/reference).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nsa/layer/nsa_attention.h"
#include "nsa/layer/random_inputs.h"
#include "nsa/nsa.h"
#include "nsa/ops/common/oracle_util.h"
#include "nsa/reference/reference.h"

namespace nsa {
namespace {

namespace ref = reference;

constexpr double kRelative = 1e-12;

ref::PhiWeights to_ref(const PhiWeights& w) {
  return {ref_of<double>(w.conv), ref_of<double>(w.pe), ref_of<double>(w.w1),
          ref_of<double>(w.b1),   ref_of<double>(w.w2), ref_of<double>(w.b2)};
}

ref::Inputs to_ref(const NsaInputs& in) {
  ref::Inputs r;
  r.q = ref_of<double>(in.q);
  r.k_cmp_src = ref_of<double>(in.k_cmp_src), r.v_cmp_src = ref_of<double>(in.v_cmp_src);
  r.k_sel = ref_of<double>(in.k_sel), r.v_sel = ref_of<double>(in.v_sel);
  r.k_win = ref_of<double>(in.k_win), r.v_win = ref_of<double>(in.v_win);
  r.gates = ref_of<double>(in.gate_logits);
  r.phi_k = to_ref(in.phi_k), r.phi_v = to_ref(in.phi_v);
  return r;
}

/// |a - b| <= 1e-12 * largest |b|; equal infinities pass, NaN fails.
void expect_close(const std::string& name, const at::Tensor& have, const at::Tensor& want) {
  ASSERT_EQ(have.sizes(), want.sizes()) << name;
  if (want.numel() == 0) return;
  const at::Tensor finite = want.isfinite();
  const double scale =
      std::max(1.0, at::where(finite, want.abs(), at::zeros_like(want)).max().item<double>());
  const at::Tensor ok = (have - want).abs().le(kRelative * scale).logical_or(have.eq(want));
  EXPECT_TRUE(ok.all().item<bool>())
      << name << ": largest difference " << (have - want).abs().max().item<double>();
}

void compare_forward(const NsaOutputs& have, const ref::Outputs& want) {
  const auto close = [](const char* name, const at::Tensor& a, const ref::Tensor<double>& b) {
    expect_close(name, a.detach(), to_aten(b, at::kDouble));
  };
  close("q_rot", have.q_rot, want.q_rot);
  close("k_cmp", have.k_cmp, want.k_cmp);
  close("v_cmp", have.v_cmp, want.v_cmp);
  close("scores", have.scores, want.scores);
  EXPECT_TRUE(at::equal(have.block_idx, to_aten(want.block_idx, at::kInt))) << "block_idx";
  EXPECT_TRUE(at::equal(have.ranges, to_aten(want.ranges, at::kInt))) << "ranges";
  close("o_cmp", have.o_cmp, want.o_cmp);
  close("o_sel", have.o_sel, want.o_sel);
  close("o_win", have.o_win, want.o_win);
  close("o", have.o, want.o);
  close("lse_cmp", have.lse_cmp, want.lse_cmp);
  close("lse_sel", have.lse_sel, want.lse_sel);
  close("lse_win", have.lse_win, want.lse_win);
}

void compare_phi(const std::string& prefix, const PhiWeights& have, const ref::PhiWeights& want) {
  const auto one = [&](const char* name, const at::Tensor& weight, const ref::Tensor<double>& g) {
    if (weight.defined()) expect_close(prefix + name, weight.grad(), to_aten(g, at::kDouble));
  };
  one("conv", have.conv, want.conv);
  one("pe", have.pe, want.pe);
  one("w1", have.w1, want.w1);
  one("b1", have.b1, want.b1);
  one("w2", have.w2, want.w2);
  one("b2", have.b2, want.b2);
}

void compare_backward(const NsaInputs& in, const ref::Inputs& grads) {
  const auto close = [](const char* name, const at::Tensor& a, const ref::Tensor<double>& b) {
    expect_close(name, a.grad(), to_aten(b, at::kDouble));
  };
  close("d_q", in.q, grads.q);
  close("d_k_cmp_src", in.k_cmp_src, grads.k_cmp_src);
  close("d_v_cmp_src", in.v_cmp_src, grads.v_cmp_src);
  close("d_k_sel", in.k_sel, grads.k_sel);
  close("d_v_sel", in.v_sel, grads.v_sel);
  close("d_k_win", in.k_win, grads.k_win);
  close("d_v_win", in.v_win, grads.v_win);
  close("d_gate_logits", in.gate_logits, grads.gates);
  compare_phi("d_phi_k.", in.phi_k, grads.phi_k);
  compare_phi("d_phi_v.", in.phi_v, grads.phi_v);
}

/// nsa::attention on the inputs of a layer call; other compressions than the mean are given.
at::Tensor by_operator(const NsaInputs& in, const NsaConfig& config) {
  BranchTensors own{.k_sel = in.k_sel, .v_sel = in.v_sel, .k_win = in.k_win, .v_win = in.v_win};
  if (config.phi != Phi::kMean)
    std::tie(own.k_cmp, own.v_cmp) =
        compress(in.k_cmp_src, in.v_cmp_src, in.phi_k, in.phi_v, config);
  return attention(in.q, in.k_cmp_src, in.v_cmp_src, in.gate_logits, config, {}, own);
}

/// Forward and backward of one configuration. B = 2 so that a mixed-up batch shows.
void compare(const NsaConfig& config, int64_t num_tokens) {
  SCOPED_TRACE("S " + std::to_string(num_tokens) + " phi " + to_string(config.phi) + " rope " +
               to_string(config.rope) + " gate " + to_string(config.gate));
  NsaInputs in = random_inputs(config, 2, num_tokens, at::kDouble);
  const ref::Inputs ref_in = to_ref(in);
  const ref::Config ref_config = ref_of(config);
  for (auto& [name, tensor] : differentiable(in)) tensor->requires_grad_(true);
  const NsaOutputs out = nsa_attention(in, config);
  const ref::Outputs want = ref::forward(ref_config, ref_in);
  compare_forward(out, want);
  const at::Tensor d_o = at::randn(out.o.sizes(), at::kDouble);
  const ref::Inputs grads = ref::backward(ref_config, ref_in, ref_of<double>(d_o));
  out.o.backward(d_o);
  compare_backward(in, grads);
  for (auto& [name, tensor] : differentiable(in)) tensor->mutable_grad() = at::Tensor();
  const at::Tensor o = by_operator(in, config);
  expect_close("operator o", o.detach(), to_aten(want.o, at::kDouble));
  o.backward(d_o);
  compare_backward(in, grads);
}

NsaConfig small() {
  NsaConfig c;
  c.num_heads = 6, c.num_kv_heads = 2, c.qk_head_dim = 8, c.v_head_dim = 6;
  c.block_size = 8, c.block_stride = 4, c.sel_block_size = 16, c.top_n = 4, c.window = 12;
  return c;
}

TEST(LayerAgainstOracle, LengthsAroundEveryBoundary) {
  at::manual_seed(1);
  for (const int64_t s : {0, 1, 7, 8, 9, 11, 12, 13, 15, 16, 17, 97}) compare(small(), s);
}

TEST(LayerAgainstOracle, PhiRopeAndGateChoices) {
  at::manual_seed(2);
  for (const Phi phi : {Phi::kMean, Phi::kConv, Phi::kMlp}) {
    for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kBlockStart, RopeMode::kNone}) {
      NsaConfig c = small();
      c.phi = phi, c.rope = rope;
      c.gate = std::array{GateActivation::kNone, GateActivation::kSoftmax,
                          GateActivation::kSigmoid}[static_cast<int>(rope)];
      compare(c, 75);
    }
  }
}

TEST(LayerAgainstOracle, UnusualSizes) {
  at::manual_seed(3);
  NsaConfig c = small();
  c.num_heads = 5, c.num_kv_heads = 1;  // G = 5
  c.block_size = 12, c.sel_block_size = 20, c.top_n = 5, c.num_initial = 2, c.num_local = 1;
  compare(c, 101);
  c.num_heads = 3, c.num_kv_heads = 3;  // G = 1
  c.block_size = 1, c.block_stride = 1, c.sel_block_size = 1, c.top_n = 7, c.num_initial = 0;
  compare(c, 31);
  c.block_stride = 1, c.block_size = 3, c.sel_block_size = 5, c.top_n = 100, c.window = 1000;
  compare(c, 43);
  c.qk_head_dim = 7, c.rope = RopeMode::kNone, c.v_head_dim = 1, c.window = 1, c.num_local = 4;
  compare(c, 29);
}

TEST(LayerAgainstOracle, ScalesOfTheBranches) {
  at::manual_seed(6);
  NsaConfig c = small();
  c.set_scale(0.5);
  compare(c, 53);
  c.scale_cmp = 1.5, c.scale_sel = std::nullopt, c.scale_win = 0.1;
  compare(c, 53);
}

TEST(LayerAgainstOracle, HalfSplitPairs) {
  at::manual_seed(8);
  for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kBlockStart, RopeMode::kNone}) {
    NsaConfig c = small();
    c.rope = rope, c.rope_pairs = RopePairs::kHalfSplit;
    compare(c, 53);
  }
}

TEST(LayerAgainstOracle, NoWindow) {
  at::manual_seed(7);
  for (const GateActivation gate :
       {GateActivation::kNone, GateActivation::kSoftmax, GateActivation::kSigmoid}) {
    NsaConfig c = small();
    c.window = 0, c.gate = gate;
    for (const int64_t s : {0, 1, 53}) compare(c, s);
  }
}

TEST(LayerAgainstOracle, ManyChunksOfQueries) {
  at::manual_seed(4);
  NsaConfig c = small();
  c.num_heads = 2, c.num_kv_heads = 1;
  compare(c, 1100);  // more than two chunks of 512 queries
}

TEST(LayerAgainstOracle, PackedDocumentsEqualSeparateCalls) {
  at::manual_seed(5);
  NsaConfig c = small();
  c.scale_sel = 0.7;
  NsaInputs in = random_inputs(c, 1, 70, at::kDouble, /*packed=*/true);
  const std::vector<int32_t> offsets{0, 0, 1, 8, 40, 40, 70};
  in.cu_seqlens = at::tensor(offsets, at::kInt);
  const NsaOutputs packed = nsa_attention(in, c);
  std::vector<int32_t> cu_cmp{0};
  for (size_t doc = 0; doc + 1 < offsets.size(); ++doc) {
    const int64_t begin = offsets[doc], length = offsets[doc + 1] - begin;
    NsaInputs own = in;
    own.cu_seqlens = at::Tensor();
    for (auto& [name, tensor] : differentiable(own)) {
      *tensor = tensor->narrow(0, begin, length).unsqueeze(0);
    }
    const ref::Outputs want = ref::forward(ref_of(c), to_ref(own));
    expect_close("o", packed.o.narrow(0, begin, length).unsqueeze(0), to_aten(want.o, at::kDouble));
    EXPECT_TRUE(at::equal(packed.block_idx.narrow(0, begin, length).unsqueeze(0),
                          to_aten(want.block_idx, at::kInt)));
    cu_cmp.push_back(cu_cmp.back() + static_cast<int32_t>(want.k_cmp.size(1)));
  }
  EXPECT_TRUE(at::equal(packed.cu_cmp, at::tensor(cu_cmp, at::kInt)));
  EXPECT_EQ(packed.scores.sizes(), at::IntArrayRef({70, 2, 2}));
}

}  // namespace
}  // namespace nsa
