#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/config/config.h"

namespace nsa {

/// Selected blocks of every row (paper, Eqs. 11 and 12; docs/semantics.md, Selection).
/// With c = floor(t / l'): forced are the blocks j < num_initial (j <= c) and c, c-1, ...
/// (num_local of them); the remaining places go to the other blocks j < c by score descending,
/// equal scores to the lower index, a NaN below every number. So a row has min(n, c + 1) ids.
///   scores [*, Hkv, N], fp32 or fp64, N > floor(t / l') for every t; t int64, broadcastable to [*]
///   -> block_idx [*, Hkv, n] int32, ascending, unused places -1 at the end. Detached. No host
/// synchronisation on CUDA. Throws c10::Error by name.
at::Tensor select_blocks(const at::Tensor& scores, const at::Tensor& t, const NsaConfig& config);

}  // namespace nsa
