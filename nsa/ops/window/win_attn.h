#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "nsa/backend/backend.h"

namespace nsa {

/// Attention over the last `window` keys: t sees [max(0, t - window + 1), t]. A window of 0 is no
/// branch: out and gradients are exactly 0, lse is -inf.
///   q [B, S, Hq, dk] rotated; k [B, N, Hkv, dk] rotated; v [B, N, Hkv, dv]; one float type;
///   query i stands at position first_position + i, which needs that key: first_position + S <= N.
///   -> {out [B, S, Hq, dv] type of q, lse [B, S, Hq] accumulation type, natural log}.
/// `scale` multiplies q.k; nothing: 1 / sqrt(dk).
/// Differentiable in q, k, v; saved tensors are linear in S. `options` chooses the backend; what
/// ran goes to current_record(). Throws c10::Error by name.
std::pair<at::Tensor, at::Tensor> win_attn(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, int64_t window,
                                           int64_t first_position = 0,
                                           const BranchOptions& options = {},
                                           std::optional<double> scale = {});

}  // namespace nsa
