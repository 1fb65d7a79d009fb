#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/backend/kernel_choice.h"
#include "nsa/config/config.h"
#include "nsa/kernels/interval/interval_backward.h"
#include "nsa/ops/attention/chunked_attention.h"

namespace nsa {

/// The kernel that computes chunked_attention(q, k, v, mask, scale) (window or visible blocks) for
/// any scale, or why there is none. `selection` set: with the selection of blocks by that
/// configuration.
KernelChoice choose_interval_kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const KeyMask& mask, const NsaConfig* selection = nullptr);

struct FusedSelection {
  at::Tensor out;        ///< [B, S, Hq, dv], type of q
  at::Tensor lse;        ///< [B, S, Hq] fp32
  at::Tensor block_idx;  ///< [B, S, Hkv, n] int32, as select_blocks gives; undefined where no
                         ///< blocks are selected
  at::Tensor ranges;     ///< [B, S, Hkv, n, 2] int32, as block_ranges gives; undefined likewise
};

/// One launch of `kernel`, which runs; no host synchronisation, no tensor of scores or
/// probabilities. Differentiable once in q, k, v through out and lse, by the same code (recorded as
/// STAGE.backward); saved are the arguments, out and lse.
FusedSelection fused_interval_attention(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const KeyMask& mask, double scale,
                                        const KernelChoice& kernel, const char* stage,
                                        const NsaConfig* selection = nullptr);

/// The same for packed documents, q, k and v of batch 1, outside of autograd; builds with CUDA code
/// only. `tiles` [n, 4] int32 as kernels::DocumentTile, of interval_tile_tokens tokens at most.
FusedSelection fused_interval_documents(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const KeyMask& mask, double scale,
                                        KernelCode code, const at::Tensor& tiles,
                                        const NsaConfig* selection = nullptr);
int64_t interval_tile_tokens(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             KernelCode code, bool selects);

/// A branch of the same rows of Q that was differentiated before, with given statistics of rows.
struct EarlierBranch {
  at::Tensor k, v;
  KeyMask mask;
  double scale = 0;
  KernelCode code{};
  kernels::IntervalRows rows;
  at::Tensor d_q;
  int64_t first_query = 0;  ///< only to queries from here on, the others have their gradients
};

/// Gradients by the kernels, outside of autograd; builds with CUDA code only. `out` and `lse` as
/// the forward pass gave them; d_lse may be undefined. `rows` not null: the statistics of the rows,
/// where they exist already; `out`, `lse` and `d_lse` are not read then. `earlier` not null, with
/// `rows` alone: that of q is added to its d_q, which is the result's.
AttentionGradients fused_interval_backward(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const at::Tensor& out,
                                           const at::Tensor& lse, const at::Tensor& d_out,
                                           const at::Tensor& d_lse, const KeyMask& mask,
                                           double scale, KernelCode code,
                                           const kernels::IntervalRows* rows = nullptr,
                                           const EarlierBranch* earlier = nullptr);

}  // namespace nsa
