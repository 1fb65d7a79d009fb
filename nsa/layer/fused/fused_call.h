#pragma once
#include <optional>

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

}  // namespace nsa
