#pragma once
#include "nsa/decode/cache/kv_rows.h"

namespace nsa {

struct LoadedAttention {
  at::Tensor out;          ///< [A, 1, Hq, dv], type of q
  at::Tensor lse;          ///< [A, 1, Hq], accumulation type; -inf for a row without a pair
  at::Tensor group_probs;  ///< [A, 1, Hkv, L], accumulation type, detached: P[i] of Eq. 10
};

/// Attention of one query a sequence over its loaded pairs: out = softmax(scale q.k) v;
/// q [A, 1, Hq, dk] rotated. Logits and softmax in the type of sums; on CUDA half and
/// bfloat16 multiply on tensor cores. Differentiable in q and the loaded pairs.
LoadedAttention attend_loaded(const at::Tensor& q, const LoadedKv& kv, double scale);

}  // namespace nsa
