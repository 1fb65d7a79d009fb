#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/backend/kernel_choice.h"
#include "nsa/config/config.h"

namespace nsa {

/// The kernel that computes select_blocks(index_scores(q_idx, k_idx, l'), t) with the own block
/// alone forced, or why there is none. Of `config` l' and n are read.
KernelChoice choose_index_kernel(const at::Tensor& q_idx, const at::Tensor& k_idx,
                                 const NsaConfig& config);

/// Blocks of every row in one launch, without scores in memory; only where a kernel runs.
///   q_idx [B, S, Hkv, di], k_idx [B, S, di] -> [B, S, Hkv, n] int32, as select_blocks gives.
/// Detached. No host synchronisation.
at::Tensor select_by_index(const at::Tensor& q_idx, const at::Tensor& k_idx,
                           const NsaConfig& config);

}  // namespace nsa
