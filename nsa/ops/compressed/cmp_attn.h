#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/backend/backend.h"
#include "nsa/backend/kernel_choice.h"
#include "nsa/config/config.h"

namespace nsa {

struct CmpAttnResult {
  at::Tensor out;          ///< [B, S, Hq, dv], type of q
  at::Tensor lse;          ///< [B, S, Hq], accumulation type, natural log, -inf for an empty row
  at::Tensor group_probs;  ///< [B, S, Hkv, N_c], accumulation type, detached: P[i] of Eq. 10;
                           ///< undefined when not asked for
};

/// Attention over the compressed blocks visible at t (paper, Eq. 8): block i is visible iff
/// i*d + l - 1 <= t; scale = config.cmp_scale(); a row with no visible block gives exactly 0.
///   q [B, S, Hq, dk] rotated; k_cmp [B, N_c, Hkv, dk]; v_cmp [B, N_c, Hkv, dv]; one float type.
/// Query i stands at position first_position + i. group_probs sums the heads of a group in
/// ascending order. Differentiable in q, k_cmp, v_cmp (through out and lse). Saved for backward:
/// the arguments, out and lse; probabilities are recomputed chunk by chunk. `options` chooses the
/// backend; what ran goes to current_record(). Throws c10::Error by name.
CmpAttnResult cmp_attn(const at::Tensor& q, const at::Tensor& k_cmp, const at::Tensor& v_cmp,
                       const NsaConfig& config, int64_t first_position = 0,
                       const BranchOptions& options = {}, bool want_group_probs = true);

struct CmpSelectResult {
  at::Tensor out;        ///< as CmpAttnResult
  at::Tensor lse;        ///< as CmpAttnResult
  at::Tensor block_idx;  ///< [B, S, Hkv, n] int32, as select_blocks; detached
  at::Tensor ranges;     ///< [B, S, Hkv, n, 2] int32, as block_ranges; detached
};

/// Backend `fused` of Eqs. 8 to 12: the compressed branch and the choice of blocks in one kernel;
/// neither probabilities nor scores exist in memory. Arguments as cmp_attn; first_position + S
/// tokens exist. Throws the obstacle of `kernel`, which choose_select_kernel chose for these
/// arguments, where it does not run.
CmpSelectResult cmp_attn_select(const at::Tensor& q, const at::Tensor& k_cmp,
                                const at::Tensor& v_cmp, const NsaConfig& config,
                                const KernelChoice& kernel, int64_t first_position = 0);
/// The same with the choice made here.
CmpSelectResult cmp_attn_select(const at::Tensor& q, const at::Tensor& k_cmp,
                                const at::Tensor& v_cmp, const NsaConfig& config,
                                int64_t first_position = 0);
/// Backend `cpu` of the same. Throws the obstacle of cpu_kernel_obstacle where there is one.
CmpSelectResult cmp_attn_select_cpu(const at::Tensor& q, const at::Tensor& k_cmp,
                                    const at::Tensor& v_cmp, const NsaConfig& config,
                                    int64_t first_position = 0);
KernelChoice choose_select_kernel(const at::Tensor& q, const at::Tensor& k_cmp,
                                  const at::Tensor& v_cmp, const NsaConfig& config);

/// The probabilities themselves, [B, S, Hq, N_c] in the accumulation type, detached; for
/// inspection and for selection scores: S x N_c x Hq values are made.
at::Tensor cmp_probs(const at::Tensor& q, const at::Tensor& k_cmp, const NsaConfig& config,
                     int64_t first_position = 0);

}  // namespace nsa
