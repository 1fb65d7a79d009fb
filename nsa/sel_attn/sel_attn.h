#pragma once
#include <ATen/core/Tensor.h>

#include <utility>

namespace nsa {

/// Attention of each query over the union of its token intervals up to its own position (paper,
/// section 3.3.2). Intervals may overlap, be unordered or reach beyond t.
///   q [B, S, Hq, dk] rotated; k [B, N, Hkv, dk] rotated; v [B, N, Hkv, dv]; one float type;
///   ranges [B, S, Hkv, K, 2] int32 half-open; query i stands at position first_position + i.
///   -> {out [B, S, Hq, dv] type of q, lse [B, S, Hq] accumulation type}; an empty row: 0 and -inf.
/// Backend `gather`, plain operations: up to 4096 keys through a token mask, above by gathering the
/// rows of K and V, always in query chunks. Differentiable in q, k, v; saved tensors are linear in
/// S.
std::pair<at::Tensor, at::Tensor> sel_attn(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const at::Tensor& ranges,
                                           int64_t first_position = 0);

}  // namespace nsa
