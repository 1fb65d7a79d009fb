#include "nsa/decode/lane_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "nsa/core/check.h"
#include "nsa/select/scores.h"

namespace nsa {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// a [R, x, y] times b [R, y, z] in the accumulation type. A product of half types with wider sums
/// has no derivative, so under autograd the operands are widened instead.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType low,
                   at::ScalarType accumulation) {
  const bool records = at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad());
  if (a.is_cuda() && low != accumulation && !records) {
    return at::bmm(a.to(low), b.to(low), accumulation);
  }
  return at::bmm(a.to(accumulation), b.to(accumulation));
}

LaneAttention no_pairs(const at::Tensor& q, const LoadedKv& kv, at::ScalarType accumulation) {
  const auto options = q.options().dtype(accumulation);
  return {at::zeros({q.size(0), 1, q.size(2), kv.v.size(3)}, q.options()),
          at::full({q.size(0), 1, q.size(2)}, kMinusInfinity, options),
          at::zeros({q.size(0), 1, kv.k.size(1), 0}, options)};
}

}  // namespace

LaneAttention attend_lanes(const at::Tensor& q, const LoadedKv& kv) {
  const int64_t batch = q.size(0), heads = q.size(2), kv_heads = kv.k.size(1), lanes = kv.k.size(2);
  const at::ScalarType low = q.scalar_type(), accumulation = accumulation_type(low);
  if (lanes == 0) return no_pairs(q, kv, accumulation);
  const at::Tensor rows = q.reshape({batch * kv_heads, heads / kv_heads, q.size(3)});
  const at::Tensor hidden = kv.masked.flatten(0, 1).unsqueeze(1);  // [A * Hkv, 1, L]
  const at::Tensor empty = hidden.all(-1, /*keepdim=*/true);
  const at::Tensor logits = product(rows, kv.k.flatten(0, 1).transpose(1, 2), low, accumulation)
                                .mul(1.0 / std::sqrt(static_cast<double>(q.size(3))))
                                .masked_fill(hidden, kMinusInfinity);
  const at::Tensor peak = logits.detach().amax(-1, /*keepdim=*/true).masked_fill(empty, 0.0);
  const at::Tensor weights = logits.sub(peak).exp();
  const at::Tensor sum = weights.sum(-1, /*keepdim=*/true);
  const at::Tensor denominator = sum.masked_fill(empty, 1.0);
  const at::Tensor out = product(weights, kv.v.flatten(0, 1), low, accumulation).div(denominator);
  const at::Tensor lse = denominator.log().add(peak).masked_fill(empty, kMinusInfinity);
  const at::Tensor probs = weights.detach().div(denominator.detach()).masked_fill_(hidden, 0.0);
  return {out.to(low).view({batch, 1, heads, kv.v.size(3)}), lse.view({batch, 1, heads}),
          group_sum(probs.view({batch, 1, heads, lanes}), kv_heads)};
}

}  // namespace nsa
