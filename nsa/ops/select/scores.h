#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/config/config.h"

namespace nsa {

/// P[i] = sum over the heads of the group, ascending, of probs[h, i] (paper, Eq. 10).
/// probs [..., Hq, N_c] -> [..., Hkv, N_c], same type. Detached. Throws c10::Error by name.
at::Tensor group_sum(const at::Tensor& probs, int64_t num_kv_heads);

/// Scores of the selection blocks (paper, Eq. 9): score[j] = sum over i ascending of
/// weight(i, j) * P[i], weight(i, j) = |[i, i + l/d) intersected with [j*l'/d, (j+1)*l'/d)|.
/// group_probs [..., N_c] in the accumulation type, 0 where a block is not visible
///   -> [..., num_sel_blocks], same type. Equal patterns give bit-equal scores. Detached.
at::Tensor block_scores(const at::Tensor& group_probs, int64_t num_sel_blocks,
                        const NsaConfig& config);

}  // namespace nsa
