// A call as one node of the autograd graph against the composition of plain operators in fp64 on
// the CPU, on the blocks that the kernels chose; part of backends_gpu_test.
#include "nsa/layer/fused/fused_call_gpu_testing.h"

#include "nsa/backend/kernel_code.h"

namespace nsa::one_call {
namespace {

class OneCall : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(51); }
};

TEST_F(OneCall, EverySizeGateAndRotation) {
  const RopeMode ropes[] = {RopeMode::kBeforePool, RopeMode::kNone, RopeMode::kBlockStart};
  const GateActivation gates[] = {GateActivation::kSigmoid, GateActivation::kSoftmax,
                                  GateActivation::kNone};
  int round = 0;
  for (const auto& [group, dk, dv] :
       {std::tuple{1, 64, 64}, std::tuple{6, 64, 64}, std::tuple{4, 128, 128},
        std::tuple{16, 192, 128}, std::tuple{3, 192, 128}, std::tuple{4, 256, 256}}) {
    for (const int64_t tokens : {1, 20, 70, 333}) {
      NsaConfig c = config_of(group, dk, dv);
      c.rope = ropes[round % 3];
      c.gate = gates[round / 3 % 3];
      CallCase one = case_of(c, tokens, round % 2 ? at::kHalf : at::kBFloat16);
      if (round % 4 == 1)  // gates of a KV head, in fp32
        one.in.gate_logits = at::randn({2, tokens, 2, 3}, at::kFloat);
      SCOPED_TRACE("round " + std::to_string(round) + " G " + std::to_string(group) + " S " +
                   std::to_string(tokens));
      expect_gradients(one);
      ++round;
    }
  }
}

/// Heads of other dims than the kernels', in every compression, rotation and activation: the same
/// node of the graph. Beyond 333 tokens the selected branch goes in the order of keys.
TEST_F(OneCall, PaddedHeads) {
  const RopeMode ropes[] = {RopeMode::kBeforePool, RopeMode::kNone, RopeMode::kBlockStart};
  const GateActivation gates[] = {GateActivation::kSigmoid, GateActivation::kSoftmax,
                                  GateActivation::kNone};
  int round = 0;
  for (const Phi phi : {Phi::kMean, Phi::kConv, Phi::kMlp})
    for (const auto& [group, dk, dv] :
         {std::tuple{4, 96, 96}, std::tuple{2, 32, 32}, std::tuple{16, 80, 80},
          std::tuple{3, 160, 120}, std::tuple{2, 224, 136}})
      for (const int64_t tokens : {20, 333, 900}) {
        if (phi != Phi::kMean && (tokens != 333 || dk > 96)) continue;
        NsaConfig c = config_of(group, dk, dv);
        c.phi = phi;
        c.rope = ropes[round % 3];
        c.gate = gates[round / 3 % 3];
        SCOPED_TRACE(to_string(phi) + " " + to_string(c.rope) + " " + to_string(c.gate) + " " +
                     std::to_string(dk) + "/" + std::to_string(dv) + ", " + std::to_string(tokens) +
                     " tokens");
        expect_gradients(case_of(c, tokens, round % 2 ? at::kHalf : at::kBFloat16));
        ++round;
      }
}

TEST_F(OneCall, PaddedHeadsWithScalesOtherOutputsAndSharedKeys) {
  NsaConfig c = config_of(4, 96, 80);
  c.scale_cmp = 0.2, c.scale_sel = 0.02, c.scale_win = 0.07;
  CallCase one = case_of(c, 150);
  expect_gradients(one);
  one.loss = [](const NsaOutputs& x) { return Tensors{x.o, x.o_sel, x.lse_win, x.q_rot, x.k_cmp}; };
  expect_gradients(one);
  CallCase shared = case_of(config_of(4, 96, 96), 900);
  shared.one_key = true;
  expect_gradients(shared);
}

/// Behind the first queries, which go in whole tiles, gradients of q join where parts are summed.
TEST_F(OneCall, TokensBehindTheFirst) {
  for (const auto& [group, dk, dv] :
       {std::tuple{6, 64, 64}, std::tuple{1, 128, 128}, std::tuple{16, 192, 128}})
    for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kNone}) {
      NsaConfig c = config_of(group, dk, dv);
      c.rope = rope;
      SCOPED_TRACE("G " + std::to_string(group));
      expect_gradients(case_of(c, 900, group == 1 ? at::kHalf : at::kBFloat16));
    }
}

/// More ranges a row than a warp has lanes, chosen by the longer lists.
TEST_F(OneCall, MoreThan32Blocks) {
  for (const int64_t top_n : {33, 64})
    for (const auto& [group, dk, dv] : {std::tuple{4, 64, 64}, std::tuple{16, 192, 128}}) {
      NsaConfig c = config_of(group, dk, dv);
      c.block_size = c.sel_block_size = 16, c.top_n = top_n;
      SCOPED_TRACE("n " + std::to_string(top_n) + " G " + std::to_string(group));
      expect_gradients(case_of(c, 1200));
    }
}

/// Inputs that are columns of one tensor have gradients that are columns of one, with the bits that
/// tensors of their own have.
TEST_F(OneCall, ColumnsOfOneTensor) {
  for (const int64_t tokens : {100, 900}) {
    const CallCase one = case_of(config_of(4, 64, 64), tokens);
    NsaInputs own = leaves_of(one, at::kCUDA, false);
    const NsaOutputs out = nsa_attention(own, one.config, kernel_options());
    const at::Tensor d_o = at::randn_like(out.o);
    out.o.backward(d_o);
    const auto inputs = [](NsaInputs& in) {
      return std::vector<at::Tensor*>{&in.q,         &in.k_cmp_src, &in.k_sel, &in.k_win,
                                      &in.v_cmp_src, &in.v_sel,     &in.v_win};
    };
    Tensors flat, gradients;
    std::vector<int64_t> widths;
    for (at::Tensor* x : inputs(own)) {
      flat.push_back(x->detach().flatten(-2));
      gradients.push_back(x->grad().flatten(-2));
      widths.push_back(flat.back().size(-1));
    }
    const at::Tensor columns = at::cat(flat, -1).requires_grad_(true);
    NsaInputs in = leaves_of(one, at::kCUDA, false);
    const Tensors views = columns.split_with_sizes(widths, -1);
    const auto places = inputs(in);
    for (size_t i = 0; i < places.size(); ++i)
      *places[i] = views[i].unflatten(-1, {places[i]->size(-2), places[i]->size(-1)});
    nsa_attention(in, one.config, kernel_options()).o.backward(d_o);
    EXPECT_TRUE(at::equal(columns.grad(), at::cat(gradients, -1))) << tokens << " tokens";
  }
}

TEST_F(OneCall, SharedKeysGetTheSum) {
  for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kNone, RopeMode::kBlockStart}) {
    NsaConfig c = config_of(4, 64, 64);
    c.rope = rope;
    CallCase one = case_of(c, 150);
    one.one_key = true;
    expect_gradients(one);
  }
}

/// Queries in whole tiles have their gradients of the window there, the others in its own kernels.
TEST_F(OneCall, AWindowOfSharedKeysJoinsWholeTiles) {
  for (const auto& [group, dk, dv] :
       {std::tuple{6, 64, 64}, std::tuple{4, 128, 128}, std::tuple{16, 192, 128}})
    for (const auto& [tokens, window] :
         {std::pair{70, 300}, std::pair{600, 256}, std::pair{900, 400}, std::pair{1000, 300}}) {
      NsaConfig c = config_of(group, dk, dv);
      c.window = window;
      c.rope = tokens == 900 ? RopeMode::kNone : RopeMode::kBeforePool;
      SCOPED_TRACE("G " + std::to_string(group) + " S " + std::to_string(tokens) + " window " +
                   std::to_string(window));
      CallCase one = case_of(c, tokens, group == 4 ? at::kHalf : at::kBFloat16);
      one.one_key = true;
      expect_gradients(one);
    }
}

TEST_F(OneCall, EveryPhi) {
  for (const Phi phi : {Phi::kConv, Phi::kMlp}) {
    NsaConfig c = config_of(2, 64, 64);
    c.phi = phi;
    expect_gradients(case_of(c, 150));
  }
}

TEST_F(OneCall, ScalesOfTheBranches) {
  for (const auto& [group, dk, dv] : {std::tuple{6, 64, 64}, std::tuple{4, 128, 128}})
    for (const int64_t tokens : {70, 900}) {
      NsaConfig c = config_of(group, dk, dv);
      c.scale_cmp = 0.2, c.scale_sel = 0.02, c.scale_win = 0.07;
      SCOPED_TRACE("G " + std::to_string(group) + " S " + std::to_string(tokens));
      expect_gradients(case_of(c, tokens));
    }
}

TEST_F(OneCall, AWindowOfNoKeys) {
  for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kNone})
    for (const int64_t tokens : {70, 900}) {
      NsaConfig c = config_of(4, 64, 64);
      c.rope = rope, c.window = 0;
      SCOPED_TRACE("S " + std::to_string(tokens));
      CallCase one = case_of(c, tokens);
      expect_gradients(one);
      one.one_key = true;
      expect_gradients(one);
    }
}

TEST_F(OneCall, SomeInputsOnly) {
  const std::vector<std::string> all{"q",     "k_cmp_src", "v_cmp_src", "k_sel",
                                     "v_sel", "k_win",     "v_win",     "gate_logits"};
  for (size_t kept = 0; kept < all.size(); ++kept) {
    SCOPED_TRACE(all[kept]);
    CallCase one = case_of(config_of(4, 64, 64), 100);
    one.frozen = all;
    one.frozen.erase(one.frozen.begin() + static_cast<int64_t>(kept));
    expect_gradients(one);
    one.frozen = {all[kept]};
    expect_gradients(one);
  }
}

TEST_F(OneCall, ALossThroughOtherOutputs) {
  const std::vector<Loss> losses{
      [](const NsaOutputs& x) { return Tensors{x.o, x.o_sel}; },
      [](const NsaOutputs& x) { return Tensors{x.lse_win, x.gates}; },
      [](const NsaOutputs& x) { return Tensors{x.o, x.q_rot, x.k_cmp, x.v_cmp}; },
      [](const NsaOutputs& x) { return Tensors{x.k_cmp}; },
      [](const NsaOutputs& x) { return Tensors{x.o_cmp, x.lse_sel}; }};
  for (const RopeMode rope : {RopeMode::kBeforePool, RopeMode::kNone}) {
    for (size_t i = 0; i < losses.size(); ++i) {
      SCOPED_TRACE("loss " + std::to_string(i));
      NsaConfig c = config_of(4, 64, 64);
      c.rope = rope;
      CallCase one = case_of(c, 100);
      one.loss = losses[i];
      expect_gradients(one);
    }
  }
}

TEST_F(OneCall, StridedInputsAndGradients) {
  CallCase one = case_of(config_of(4, 64, 64), 100);
  for (auto& [name, tensor] : differentiable(one.in))
    *tensor = tensor->transpose(1, 2).contiguous().transpose(1, 2);
  one.loss = [](const NsaOutputs& x) { return Tensors{x.o.transpose(1, 2)}; };
  expect_gradients(one);
}

TEST_F(OneCall, AGateOfZeroLeavesNoGradientInItsBranch) {
  CallCase one = case_of(config_of(4, 64, 64), 100);
  one.config.gate = GateActivation::kSigmoid;
  one.in.gate_logits = at::full({2, 100, 8, 3}, -200.0, at::kFloat);  // sigmoid is 0 in fp32
  one.in.gate_logits.select(-1, 2).fill_(1.0);
  NsaInputs in = leaves_of(one, at::kCUDA, false);
  nsa_attention(in, one.config, kernel_options()).o.sum().backward();
  for (const at::Tensor& x : {in.k_sel, in.v_sel, in.k_cmp_src, in.v_cmp_src})
    EXPECT_TRUE(x.grad().eq(0).all().item<bool>());
  for (const at::Tensor& x : {in.k_win, in.v_win, in.q}) {
    EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
    EXPECT_FALSE(x.grad().eq(0).all().item<bool>());
  }
}

TEST_F(OneCall, EveryPassOfABranchNamesItsCode) {
  const CallCase one = case_of(config_of(4, 64, 64), 100);
  for (const char* code : {"sm80", "auto"}) {  // the last one is in force for the next test
    want_kernels(code, at::kCUDA);
    const NsaOutputs out =
        nsa_attention(leaves_of(one, at::kCUDA, false), one.config, kernel_options());
    out.o.sum().backward();
    std::map<std::string, std::string> details;
    for (const RanBackend& row : out.record->rows()) details[row.stage] = row.detail;
    const bool sm80 = std::string(code) == "sm80" ||
                      choose_kernel(out.o, {.family = KernelFamily::kInterval}).detail == "sm_80";
    for (const char* stage :
         {"cmp_attn", "win_attn", "cmp_attn.backward", "sel_attn.backward", "win_attn.backward"}) {
      ASSERT_TRUE(details.contains(stage)) << stage;
      EXPECT_EQ(details[stage], sm80 ? "sm_80" : "") << code << " " << stage;
    }
  }
}

TEST_F(OneCall, ASecondDerivativeIsRefused) {
  CallCase one = case_of(config_of(4, 64, 64), 40);
  NsaInputs in = leaves_of(one, at::kCUDA, false);
  const at::Tensor o = nsa_attention(in, one.config, kernel_options()).o;
  EXPECT_THAT(error_of([&] {
                torch::autograd::grad({o.sum()}, {in.q}, {}, std::nullopt, /*create_graph=*/true);
              }),
              HasSubstr("double backward is not supported"));
}

TEST_F(OneCall, ABadGradientReachesItsOwnRowAndKeysOnly) {
  CallCase one = case_of(config_of(4, 64, 64), 300);
  one.config.rope = RopeMode::kNone;
  NsaInputs in = leaves_of(one, at::kCUDA, false);
  const NsaOutputs out = nsa_attention(in, one.config, kernel_options());
  at::Tensor d_o = at::randn_like(out.o);
  d_o.select(1, 70).fill_(NAN);
  out.o.backward(d_o);
  const at::Tensor token = at::arange(300, at::TensorOptions(at::kCUDA)).view({1, 300, 1, 1});
  const at::Tensor own = token.eq(70);
  const at::Tensor window = token.gt(70 - one.config.window).logical_and(token.le(70));
  EXPECT_TRUE(at::equal(in.q.grad().isnan(), own.expand_as(in.q)));
  EXPECT_TRUE(at::equal(in.k_win.grad().isnan(), window.expand_as(in.k_win)));
  EXPECT_TRUE(at::equal(in.v_win.grad().isnan(), window.expand_as(in.v_win)));
  const at::Tensor behind = token.gt(70).expand_as(in.k_sel);
  for (const at::Tensor& x : {in.k_sel, in.v_sel, in.k_cmp_src, in.v_cmp_src}) {
    EXPECT_FALSE(x.grad().isnan().logical_and(behind).any().item<bool>());
    EXPECT_TRUE(x.grad().isnan().any().item<bool>());
  }
}

}  // namespace
}  // namespace nsa::one_call
