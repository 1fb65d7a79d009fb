#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/ops/attention/key_mask.h"

namespace nsa {

struct AttentionResult {
  at::Tensor out;          ///< [B, S, Hq, dv], type of q
  at::Tensor lse;          ///< [B, S, Hq], accumulation type, natural log
  at::Tensor group_probs;  ///< [B, S, Hkv, N], accumulation type, detached; undefined if not asked
};

/// softmax(scale * q.k) v over the keys that `mask` allows, in chunks of queries: the one engine
/// behind the plain operators of all branches. Arguments as checked by ArgumentCheck::qkv.
/// - Logits, softmax and sums are in the type of sums (sum_type in check.h), rounded once. A row
///   without a key is exactly 0, -inf.
/// - A key that is not allowed has no influence on a row, be it NaN or infinite.
/// - Differentiable once in q, k, v through out and lse; saved: the arguments, out, lse. Backward
///   computes probabilities again, chunk by chunk. No atomics on floats.
AttentionResult chunked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const KeyMask& mask, double scale, bool want_group_probs = false);

struct AttentionGradients {
  at::Tensor q, k, v;
};

/// The gradients alone, from the arguments of the forward pass; for operators whose forward pass is
/// computed elsewhere. d_out [B, S, Hq, dv] and d_lse [B, S, Hq] may be undefined.
AttentionGradients chunked_attention_backward(const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const KeyMask& mask,
                                              double scale, const at::Tensor& d_out,
                                              const at::Tensor& d_lse);

/// The group_probs of chunked_attention alone, for a forward pass that is computed elsewhere;
/// detached, no host synchronisation. [B, S, Hkv, N] in the accumulation type.
at::Tensor group_probs(const at::Tensor& q, const at::Tensor& k, const KeyMask& mask, double scale);

/// Probabilities [B, S, Hq, N] in the accumulation type, 0 where not allowed; detached.
at::Tensor attention_probs(const at::Tensor& q, const at::Tensor& k, const KeyMask& mask,
                           double scale);

}  // namespace nsa
