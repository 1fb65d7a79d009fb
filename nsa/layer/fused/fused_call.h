#pragma once
#include <optional>
#include <vector>

#include "nsa/layer/batched.h"
#include "nsa/layer/fused/fused_gradients.h"
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// The kernels with which one node of the autograd graph computes this call, where it does: it will
/// be differentiated, every branch is asked for as `fused`, and kernels cover it, forward and
/// backward. Nothing is kept of the steps between inputs and branches then, and their gradients
/// meet in one launch.
std::optional<BranchKernels> choose_one_call(const NsaInputs& inputs, const NsaConfig& config,
                                             const NsaOptions& options);

/// batched_attention with `kernels` of choose_one_call. Differentiable once in every input through
/// every output but block_idx and ranges; a loss through others than `o` computes the branches
/// again.
NsaOutputs fused_call(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options,
                      const BranchKernels& kernels);

/// Gradients of q, k_cmp_src, v_cmp_src, k_sel, v_sel, k_win, v_win and gate_logits of a call whose
/// forward pass left `steps`, from d_o [B, S, Hq, dv], by the kernels and outside of the autograd
/// graph; empty where they do not cover the call. Inputs that are one tensor have their sum in the
/// first place. `compressed`: k_cmp_src and v_cmp_src are the results of compression. `branches`
/// false: of the logits only. Outputs of branches that `steps` alone holds are let go of on the
/// way.
std::vector<at::Tensor> gradients_of_steps(const NsaInputs& inputs, const NsaConfig& config,
                                           Steps steps, const at::Tensor& d_o, bool compressed,
                                           bool branches);

/// The same from what the branches read and left, as the kernels take it; builds with CUDA code.
/// `pooled`: k_cmp_src and v_cmp_src are the sources of compression.
std::vector<at::Tensor> gradients_of_saved(const NsaInputs& inputs, const NsaConfig& config,
                                           SavedCall saved, const BranchKernels& kernels,
                                           const at::Tensor& d_o, bool pooled, bool branches);

}  // namespace nsa
