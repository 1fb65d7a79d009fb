#include "nsa/layer/cpu_gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <tuple>
#include <utility>

#include "nsa/ops/attention/cpu_attention.h"
#include "nsa/ops/gate/gate.h"
#include "nsa/ops/rope/rope.h"

namespace nsa {
namespace {

using torch::autograd::variable_list;

at::Tensor leaf_of(const at::Tensor& x) { return x.detach().requires_grad_(); }

/// Gradients of the outputs of the branches and of the gate logits.
variable_list gate_gradients(const Steps& steps, const at::Tensor& gate_logits,
                             const NsaConfig& config, const at::Tensor& d_o) {
  const variable_list leaves{leaf_of(steps.out.o_cmp), leaf_of(steps.out.o_sel),
                             leaf_of(steps.out.o_win), leaf_of(gate_logits)};
  const at::Tensor o =
      gate_combine(leaves[0], leaves[1], leaves[2], gate_activate(leaves[3], config.gate));
  return torch::autograd::grad({o}, leaves, {d_o});
}

/// The inputs of a call but the logits as leaves, one for those that are one tensor, and what the
/// branches read of them.
class BranchInputs {
 public:
  BranchInputs(const NsaInputs& in, const NsaConfig& config, bool compressed)
      : given_{in.q, in.k_cmp_src, in.v_cmp_src, in.k_sel, in.v_sel, in.k_win, in.v_win} {
    for (size_t i = 0; i < given_.size(); ++i)
      leaves_.push_back(first(i) == i ? leaf_of(given_[i]) : leaves_[first(i)]);
    read_ = leaves_;
    if (!compressed)
      std::tie(read_[1], read_[2]) = compress(leaves_[1], leaves_[2], in.phi_k, in.phi_v, config);
    if (config.rope == RopeMode::kNone) return;
    Rotation rotation(at::arange(in.q.size(1), at::kLong), config.rope_base, config.rope_pairs);
    for (const size_t i : {0, 3, 5}) read_[i] = rotation(leaves_[i]);
  }

  /// From gradients of what the branches read, in order, undefined for none; a shared input has its
  /// sum in its first place.
  variable_list gradients(const variable_list& of_read) const {
    variable_list outputs, found_for, unique;
    for (size_t i = 0; i < given_.size(); ++i) {
      if (first(i) == i) unique.push_back(leaves_[i]);
      if (!of_read[i].defined() || !read_[i].requires_grad()) continue;
      outputs.push_back(read_[i]);
      found_for.push_back(of_read[i]);
    }
    const variable_list found =
        torch::autograd::grad(outputs, unique, found_for, /*retain_graph=*/std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    variable_list result(given_.size());
    for (size_t i = 0, next = 0; i < given_.size(); ++i)
      if (first(i) == i) result[i] = found[next++];
    return result;
  }

 private:
  size_t first(size_t i) const {
    for (size_t j = 0; j < i; ++j)
      if (given_[j].is_same(given_[i])) return j;
    return i;
  }

  variable_list given_, leaves_, read_;
};

/// Gradients of what the branches read, in the order of BranchInputs.
struct ReadGradients {
  /// Of one branch, whose keys and values have places `keys` and keys + 1.
  void add(CpuGradients of_branch, size_t keys) {
    if (found[0].defined())
      found[0].add_(of_branch.q);
    else
      found[0] = std::move(of_branch.q);
    found[keys] = std::move(of_branch.k), found[keys + 1] = std::move(of_branch.v);
  }
  variable_list found = variable_list(7);
};

}  // namespace

variable_list cpu_gradients_of_steps(const NsaInputs& in, const NsaConfig& config, Steps steps,
                                     const at::Tensor& d_o, bool compressed, bool branches) {
  const at::AutoGradMode recording(true);
  NsaOutputs& out = steps.out;
  variable_list gates = gate_gradients(steps, in.gate_logits, config, d_o);
  // What was read for the last time goes, so that the next branch has its memory.
  for (at::Tensor* const x : {&out.o_cmp, &out.o_sel, &out.o_win}) x->reset();
  const auto gradient_of = [&](size_t branch) { return std::exchange(gates[branch], {}); };
  variable_list result(7);
  if (branches) {
    ReadGradients read;
    CpuGradients d =
        cpu_attention_gradients({out.q_rot, out.k_cmp, out.v_cmp, out.lse_cmp, gradient_of(0)},
                                compressed_mask(config), config.cmp_scale(), "cmp_attn");
    read.add(std::move(d), 1);
    d = cpu_attention_gradients({out.q_rot, steps.k_sel, in.v_sel, out.lse_sel, gradient_of(1)},
                                {KeyMask::kRanges, 0, 0, 1, out.ranges}, config.sel_scale(),
                                "sel_attn");
    read.add(std::move(d), 3);
    if (config.window > 0) {
      d = cpu_attention_gradients({out.q_rot, steps.k_win, in.v_win, out.lse_win, gradient_of(2)},
                                  window_mask(config), config.win_scale(), "win_attn");
      read.add(std::move(d), 5);
    }
    result = BranchInputs(in, config, compressed).gradients(read.found);
  }
  result.push_back(gates[3]);
  return result;
}

}  // namespace nsa
