#pragma once
#include "nsa/nsa.h"

/// The intermediate results of nsa::attention, for whoever judges it. Not for speed: autograd
/// records every step.
namespace nsa {

/// Shapes of a batched call; packed documents have T in the place of B and S. Types as in the
/// comments, else that of q. Symbols: docs/semantics.md.
struct Intermediates {
  at::Tensor o;                          ///< [B, S, Hq, dv]
  at::Tensor o_cmp, o_sel, o_win;        ///< [B, S, Hq, dv], not weighted by gates
  at::Tensor lse_cmp, lse_sel, lse_win;  ///< [B, S, Hq] natural logarithm; fp32, of fp64 q fp64
  at::Tensor q_rot;                      ///< [B, S, Hq, dk] rotated
  at::Tensor k_cmp, v_cmp;               ///< [B, N_c, Hkv, dk or dv]; packed [sum of N_c, Hkv, .]
  at::Tensor scores;     ///< [B, S, Hkv, ceil(S / l')] of selection blocks; or undefined
  at::Tensor block_idx;  ///< int32 [B, S, Hkv, n] ascending, -1 at the end
  at::Tensor ranges;     ///< int32 [B, S, Hkv, n, 2] attended keys [begin, end)
  at::Tensor gates;      ///< activated, shape of the logits; type of lse
  std::string ran;       ///< a line for each stage: what computed it, and why
};

/// Computes attention(q, k, v, gates, config, options, branches), or attention_varlen where
/// cu_seqlens is defined, and keeps what lies between. Errors as there. No kernel writes scores
/// out: without them the branches are computed as in the call, and with them as `ran` has it.
Intermediates attention_intermediates(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& gates, const Config& config = {},
                                      const Options& options = {},
                                      const BranchTensors& branches = {},
                                      const at::Tensor& cu_seqlens = {}, bool with_scores = true);

}  // namespace nsa
