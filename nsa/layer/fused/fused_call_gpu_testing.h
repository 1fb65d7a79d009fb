// Cases of a call as one node of the autograd graph, and its gradients against fp64.
#pragma once
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "nsa/layer/nsa_attention.h"
#include "nsa/layer/random_inputs.h"
#include "nsa/tests/backends_gpu_testing.h"

namespace nsa::one_call {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using Loss = std::function<Tensors(const NsaOutputs&)>;

inline NsaConfig config_of(int64_t group, int64_t dk, int64_t dv) {
  NsaConfig c;
  c.num_heads = 2 * group;
  c.num_kv_heads = 2;
  c.qk_head_dim = dk;
  c.v_head_dim = dv;
  c.window = 40;
  c.top_n = 4;
  return c;
}

inline NsaOptions kernel_options() {
  NsaOptions options;
  options.sel = SelBackend::kFused;
  options.cmp = options.win = BranchBackend::kFused;
  options.keep_scores = false;
  options.strict_backend = true;
  return options;
}

inline Tensors only_o(const NsaOutputs& out) { return {out.o}; }

struct CallCase {
  NsaConfig config;
  NsaInputs in;  ///< on the CPU, rounded to the type
  at::ScalarType type = at::kBFloat16;
  Loss loss = only_o;               ///< outputs that a gradient comes through
  std::vector<std::string> frozen;  ///< inputs without a gradient
  bool one_key = false;             ///< the branches share K and V
};

/// Inputs on a device in a type, as leaves; with `one_key` those of the selected branch for all.
inline NsaInputs leaves_of(const CallCase& one, at::Device device, bool exact) {
  NsaInputs in = one.in;
  for (auto& [name, tensor] : differentiable(in)) {
    const bool learns = std::find(one.frozen.begin(), one.frozen.end(), name) == one.frozen.end();
    *tensor = (exact ? tensor->to(device, at::kDouble) : tensor->to(device))
                  .detach()
                  .clone(at::MemoryFormat::Preserve)
                  .requires_grad_(learns);
  }
  if (one.one_key) {
    in.k_cmp_src = in.k_win = in.k_sel;
    in.v_cmp_src = in.v_win = in.v_sel;
  }
  return in;
}

/// Gradients in fp64 on the CPU; those of frozen inputs are left out.
inline Tensors gradients_of(const CallCase& one, NsaInputs& in, const NsaOutputs& out,
                            const Tensors& upstream) {
  Tensors leaves, through = one.loss(out), given;
  for (auto& [name, tensor] : differentiable(in))
    if (tensor->requires_grad()) leaves.push_back(*tensor);
  for (size_t i = 0; i < through.size(); ++i)
    given.push_back(upstream[i].to(through[i].device(), through[i].scalar_type()));
  Tensors found = torch::autograd::grad(through, leaves, given, /*retain_graph=*/true, false,
                                        /*allow_unused=*/true);
  for (at::Tensor& x : found) x = x.defined() ? x.to(at::kCPU, at::kDouble) : at::zeros({1});
  return found;
}

/// The last bias of phi_k is added to all compressed keys, which moves no probability: its gradient
/// is 0, what is left of terms that cancel. They are its scale, and one ulp of the type its bound.
inline void expect_cancelled(const CallCase& one, const at::Tensor& got, const at::Tensor& ideal,
                             const NsaOutputs& exact, const Tensors& upstream) {
  Tensors given;
  for (const at::Tensor& d : upstream) given.push_back(d.to(at::kDouble));
  const Tensors d_keys = torch::autograd::grad(one.loss(exact), {exact.k_cmp}, given, true);
  const at::Tensor terms = d_keys[0].abs().sum(at::IntArrayRef{0, 1, 2});
  const double ulp = one.type == at::kHalf ? 0x1p-10 : 0x1p-7;
  EXPECT_LE(ideal.abs().max().item<double>(), 1e-10);
  EXPECT_GT(terms.min().item<double>(), 0.0);
  EXPECT_LE(((got - ideal).abs() / terms).max().item<double>(), ulp);
}

/// Gradients of the call that keeps two branches; of the call that keeps all where the loss has
/// more outputs, which such a call has not.
inline Tensors gradients_of_two(const CallCase& one, const Tensors& upstream) {
  NsaInputs in = leaves_of(one, at::kCUDA, false);
  NsaOptions options = kernel_options();
  options.keep_branches = false;
  NsaOutputs out = nsa_attention(in, one.config, options);
  const bool two = one.config.gate != GateActivation::kNone;
  EXPECT_EQ(out.o_cmp.defined() || out.o_sel.defined() || out.o_win.defined(), !two);
  const Tensors through = one.loss(out);
  if (through.size() > 1 || !through[0].is_same(out.o))
    out = nsa_attention(in, one.config, kernel_options());
  return gradients_of(one, in, out, upstream);
}

inline void expect_gradients(const CallCase& one) {
  NsaInputs in = leaves_of(one, at::kCUDA, false);
  const NsaOutputs have = nsa_attention(in, one.config, kernel_options());
  ASSERT_TRUE(have.o.grad_fn() != nullptr);
  EXPECT_THAT(have.o.grad_fn()->name(), HasSubstr("FusedCall"));
  Tensors upstream;
  for (const at::Tensor& x : one.loss(have))
    upstream.push_back(at::randn(x.sizes(), at::kDouble).to(one.type));
  NsaInputs exact = leaves_of(one, at::kCPU, true);
  NsaOptions given;
  given.block_idx = have.block_idx.cpu();
  const NsaOutputs want = nsa_attention(exact, one.config, given);
  const double bound = one.type == at::kHalf ? 5e-3 : 4e-2;
  const auto outputs = [](const NsaOutputs& x) {
    return Tensors{x.o,     x.o_cmp,   x.o_sel,   x.o_win,   x.q_rot, x.k_cmp,
                   x.v_cmp, x.lse_cmp, x.lse_sel, x.lse_win, x.gates};
  };
  const Tensors a = outputs(have), b = outputs(want);
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_LE(distance(a[i].detach().to(at::kCPU, at::kDouble), b[i].detach()), bound)
        << "output " << i;
  const Tensors got = gradients_of(one, in, have, upstream);
  NsaInputs again_in = leaves_of(one, at::kCUDA, false);
  const NsaOutputs again_out = nsa_attention(again_in, one.config, kernel_options());
  const Tensors again = gradients_of(one, again_in, again_out, upstream);
  const Tensors ideal = gradients_of(one, exact, want, upstream);
  const Tensors two = gradients_of_two(one, upstream);
  std::vector<std::string> learning;
  for (auto& [name, tensor] : differentiable(in))
    if (tensor->requires_grad()) learning.push_back(name);
  ASSERT_EQ(got.size(), ideal.size());
  ASSERT_EQ(got.size(), learning.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("gradient of " + learning[i]);
    EXPECT_TRUE(at::equal(got[i], again[i])) << "not the same bits twice";
    const bool cancels = one.config.rope != RopeMode::kBlockStart;  // else it is rotated by place
    if (learning[i] == "phi_k.b2" && cancels) {
      expect_cancelled(one, got[i], ideal[i], want, upstream);
    } else {
      EXPECT_LE(distance(got[i], ideal[i]), bound);
      EXPECT_LE(distance(two[i], ideal[i]), bound) << "two branches kept";
    }
  }
}

inline CallCase case_of(const NsaConfig& config, int64_t tokens,
                        at::ScalarType type = at::kBFloat16) {
  CallCase one;
  one.config = config;
  one.type = type;
  one.in = random_inputs(config, 2, tokens, at::TensorOptions(at::kDouble));
  for (auto& [name, tensor] : differentiable(one.in)) *tensor = tensor->to(type);
  return one;
}

}  // namespace nsa::one_call
