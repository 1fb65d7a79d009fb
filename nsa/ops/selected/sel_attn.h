#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "nsa/backend/backend.h"

namespace nsa {

/// Attention of each query over the union of its token intervals up to its own position (paper,
/// section 3.3.2). Intervals may overlap, be unordered or reach beyond t.
///   q [B, S, Hq, dk] rotated; k [B, N, Hkv, dk] rotated; v [B, N, Hkv, dv]; one float type;
///   ranges [B, S, Hkv, K, 2] int32 half-open; query i stands at position first_position + i.
///   -> {out [B, S, Hq, dv] type of q, lse [B, S, Hq] natural log}; an empty row: 0 and -inf.
/// `scale` multiplies q.k; nothing: 1 / sqrt(dk).
/// Differentiable in q, k, v; saved tensors and working memory are linear in S. `options` chooses
/// the backend; what ran goes to current_record(). Throws c10::Error by name.
std::pair<at::Tensor, at::Tensor> sel_attn(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const at::Tensor& ranges,
                                           int64_t first_position = 0,
                                           const SelAttnOptions& options = {},
                                           std::optional<double> scale = {});

}  // namespace nsa
