#include "nsa/ops/attention/library_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>

#include "nsa/diagnostics/run_record.h"
#include "nsa/ops/attention/deterministic_scope.h"

namespace nsa {
namespace {

constexpr int64_t kFlashMaxDim = 256;
constexpr int64_t kCudnnMaxDim = 128;

std::string dim_text(int64_t dk, int64_t dv) {
  return "dk = " + std::to_string(dk) + ", dv = " + std::to_string(dv);
}

std::string obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     int64_t max_dim) {
  const int64_t dk = q.size(-1), dv = v.size(-1);
  if (!q.is_cuda()) return "it needs CUDA tensors";
  if (q.scalar_type() != at::kHalf && q.scalar_type() != at::kBFloat16) {
    return "it needs half or bfloat16";
  }
  if (dk != dv || dk % 8 != 0 || dk > max_dim) {
    return "it needs dk = dv, a multiple of 8 up to " + std::to_string(max_dim) + ", got " +
           dim_text(dk, dv);
  }
  if (q.numel() == 0 || k.numel() == 0) return "there is nothing to compute";
  return "";
}

/// Stands for the state of dropout, which is never used.
at::Tensor no_dropout_state(const at::Tensor& like) {
  return at::zeros({2}, like.options().dtype(at::kLong));
}

/// A window that reaches every key is no window: the library's causal kernels are the faster ones.
bool sees_all(const WindowedQueries& x) { return x.window >= x.k.size(1); }

std::optional<int64_t> left_of(const WindowedQueries& x) {
  return sees_all(x) ? std::nullopt : std::optional<int64_t>(x.window - 1);
}

std::optional<int64_t> right_of(const WindowedQueries& x) {
  return sees_all(x) ? std::nullopt : std::optional<int64_t>(0);
}

}  // namespace

bool all_finite(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor finite = q.isfinite().all().logical_and(k.isfinite().all());
  return finite.logical_and(v.isfinite().all()).item<bool>();
}

std::string flash_obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return obstacle(q, k, v, kFlashMaxDim);
}

std::string cudnn_obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const std::string reason = obstacle(q, k, v, kCudnnMaxDim);
  if (!reason.empty() || all_finite(q, k, v)) return reason;
  return "inputs are not finite, and it multiplies masked places by 0";
}

LibraryOutputs flash_packed_forward(const PackedSequences& x) {
  current_record()->sdpa("_flash_attention_forward", x.q, x.k, x.v, x.cu_k.size(0) - 1);
  const auto result = at::_flash_attention_forward(x.q, x.k, x.v, x.cu_q, x.cu_k, x.max_q, x.max_k,
                                                   /*dropout_p=*/0.0, /*is_causal=*/false,
                                                   /*return_debug_mask=*/false, x.scale,
                                                   /*window_size_left=*/{},
                                                   /*window_size_right=*/{}, x.used_k);
  // Flash calls the lse of a row infinite whose sum is 0 or NaN, and such a row may be 0.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  at::Tensor out = std::get<0>(result), lse = std::get<1>(result);
  const at::Tensor undefined = lse.eq(kInfinity);
  out.masked_fill_(undefined.t().unsqueeze(-1), kNan);
  lse.masked_fill_(undefined, kNan);
  return {out, lse};
}

LibraryGradients flash_packed_backward(const PackedSequences& x, const at::Tensor& d_out,
                                       const at::Tensor& out, const at::Tensor& lse) {
  current_record()->sdpa("_flash_attention_backward", x.q, x.k, x.v, x.cu_k.size(0) - 1);
  const DeterministicScope deterministic;
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      d_out.contiguous(), x.q, x.k, x.v, out.contiguous(), lse, x.cu_q, x.cu_k, x.max_q, x.max_k,
      /*dropout_p=*/0.0, /*is_causal=*/false, no_dropout_state(x.q), no_dropout_state(x.q),
      x.scale);
  return {dq, dk, dv};
}

LibraryOutputs flash_window_forward(const WindowedQueries& x) {
  current_record()->sdpa("_flash_attention_forward", x.q, x.k, x.v);
  const auto result = at::_flash_attention_forward(
      x.q, x.k, x.v, std::nullopt, std::nullopt, x.q.size(1), x.k.size(1), /*dropout_p=*/0.0,
      /*is_causal=*/sees_all(x), /*return_debug_mask=*/false, x.scale, left_of(x), right_of(x));
  return {std::get<0>(result), std::get<1>(result).transpose(1, 2)};
}

LibraryGradients flash_window_backward(const WindowedQueries& x, const at::Tensor& d_out,
                                       const at::Tensor& out, const at::Tensor& lse) {
  current_record()->sdpa("_flash_attention_backward", x.q, x.k, x.v);
  const DeterministicScope deterministic;
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      d_out.contiguous(), x.q, x.k, x.v, out.contiguous(), lse.transpose(1, 2).contiguous(),
      /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, x.q.size(1), x.k.size(1), /*dropout_p=*/0.0,
      /*is_causal=*/sees_all(x), no_dropout_state(x.q), no_dropout_state(x.q), x.scale, left_of(x),
      right_of(x));
  return {dq, dk, dv};
}

LibraryOutputs cudnn_causal_forward(const WindowedQueries& x) {
  const int64_t group = x.q.size(2) / x.k.size(2);
  const auto heads_first = [](const at::Tensor& t, int64_t repeat) {
    return t.repeat_interleave(repeat, 2).transpose(1, 2);
  };
  current_record()->sdpa("_scaled_dot_product_cudnn_attention", x.q, x.k, x.v);
  const auto result = at::_scaled_dot_product_cudnn_attention(
      x.q.transpose(1, 2), heads_first(x.k, group), heads_first(x.v, group),
      /*attn_bias=*/std::nullopt, /*compute_log_sumexp=*/true, /*dropout_p=*/0.0,
      /*is_causal=*/true, /*return_debug_mask=*/false, x.scale);
  const at::Tensor lse = std::get<1>(result);
  return {std::get<0>(result).transpose(1, 2),
          (lse.dim() == 4 ? lse.squeeze(-1) : lse).transpose(1, 2)};
}

}  // namespace nsa
