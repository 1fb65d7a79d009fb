#pragma once
#include <vector>

#include "nsa/layer/batched.h"
#include "nsa/layer/fused/packed_tables.h"

/// Packed documents as one sequence of a batch of one: every branch is one launch over all
/// documents, without copies and without a host synchronisation. Builds with CUDA code.
namespace nsa {

/// The forward pass, outside of autograd; inputs [T, ...], checked. Tensors of the result are [1,
/// T, ...]; k_cmp and v_cmp have the T / d rows of PackedTables, ranges count all tokens.
/// `keeps_two` as of attend_branches.
Steps packed_steps(const NsaInputs& inputs, const NsaConfig& config, const at::Tensor& block_idx,
                   const PackedKernels& kernels, bool keeps_two = false);

/// Gradients of q, k_cmp_src, v_cmp_src, k_sel, v_sel, k_win, v_win and gate_logits, [1, T, ...],
/// from what packed_steps left and d_o [T, Hq, dv]; otherwise as gradients_of_steps.
std::vector<at::Tensor> packed_gradients(const NsaInputs& inputs, const NsaConfig& config,
                                         Steps steps, const at::Tensor& d_o,
                                         const PackedKernels& kernels, bool branches);

}  // namespace nsa
