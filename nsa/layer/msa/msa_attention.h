#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/layer/nsa_attention.h"

namespace nsa {

struct IndexedAttention {
  at::Tensor o;          ///< [B, S, Hq, dv], type of q
  at::Tensor lse;        ///< [B, S, Hq], natural log, accumulation type
  at::Tensor block_idx;  ///< [B, S, Hkv, n] int32, ascending, -1 where a place is unused
  RunRecordPtr record;   ///< what ran
};

/// MiniMax Sparse Attention (arXiv 2606.13392; docs/semantics.md, Selection by an index): each
/// query of a group attends the current block and the top_n - 1 blocks before it whose index scores
/// are largest, exactly and causally.
///   q [B, S, Hq, dk], k [B, S, Hkv, dk], v [B, S, Hkv, dv]; q_idx [B, S, Hkv, di], k_idx
///   [B, S, di]; rotated where they shall be, one float type.
/// Of `config` block_size and top_n are read; of `options` how the selected branch is computed, and
/// block_idx in the place of the index. Differentiable in q, k and v. Throws c10::Error by name.
IndexedAttention attend_by_index(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& q_idx, const at::Tensor& k_idx,
                                 const MsaConfig& config, const NsaOptions& options);

}  // namespace nsa
