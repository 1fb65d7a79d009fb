#pragma once
#include "nsa/layer/nsa_attention.h"

namespace nsa {

/// Whether one node of the autograd graph computes this call: it will be differentiated, every
/// branch is asked for as `fused`, and kernels cover it, forward and backward. Nothing is kept of
/// the steps between inputs and branches then, and their gradients meet in one launch.
bool goes_as_one_call(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options);

/// batched_attention where goes_as_one_call. Differentiable once in every input through every
/// output but block_idx and ranges; a loss through others than `o` computes the branches again.
NsaOutputs fused_call(const NsaInputs& inputs, const NsaConfig& config, const NsaOptions& options);

}  // namespace nsa
