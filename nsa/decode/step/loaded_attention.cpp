#include "nsa/decode/step/loaded_attention.h"

#include <ATen/ATen.h>

#include <limits>

#include "nsa/ops/common/check.h"
#include "nsa/ops/select/scores.h"

namespace nsa {
namespace {

constexpr double kMaskedLogit = -std::numeric_limits<double>::infinity();

/// a [R, x, y] times b [R, y, z] in the type of sums. A product of half types with wider sums
/// has no derivative, so under autograd the operands are widened instead.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType low,
                   at::ScalarType sums) {
  const bool records = at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad());
  if (a.is_cuda() && at::isReducedFloatingType(low) && !records) {
    return at::bmm(a.to(low), b.to(low), sums);
  }
  return product_of(a.to(sums), b.to(sums));
}

LoadedAttention no_pairs(const at::Tensor& q, const LoadedKv& kv) {
  const auto options = q.options().dtype(accumulation_type(q.scalar_type()));
  return {at::zeros({q.size(0), 1, q.size(2), kv.v.size(3)}, q.options()),
          at::full({q.size(0), 1, q.size(2)}, kMaskedLogit, options),
          at::zeros({q.size(0), 1, kv.k.size(1), 0}, options)};
}

}  // namespace

LoadedAttention attend_loaded(const at::Tensor& q, const LoadedKv& kv, double scale) {
  const int64_t batch = q.size(0), heads = q.size(2), kv_heads = kv.k.size(1),
                rows_loaded = kv.k.size(2);
  const at::ScalarType low = q.scalar_type(), sums = sum_type(q);
  if (rows_loaded == 0) return no_pairs(q, kv);
  const at::Tensor rows = q.reshape({batch * kv_heads, heads / kv_heads, q.size(3)});
  const at::Tensor hidden = kv.masked.flatten(0, 1).unsqueeze(1);  // [A * Hkv, 1, L]
  const at::Tensor empty = hidden.all(-1, /*keepdim=*/true);
  const at::Tensor logits = product(rows, kv.k.flatten(0, 1).transpose(1, 2), low, sums)
                                .mul(scale)
                                .masked_fill(hidden, kMaskedLogit);
  // The derivative of softmax, unlike that of its parts, is exactly 0 where one pair decides.
  const at::Tensor rows_with_pairs = logits.masked_fill(empty, 0.0);
  const at::Tensor probs = at::softmax(rows_with_pairs, -1).masked_fill(hidden, 0.0);
  const at::Tensor out = product(probs, kv.v.flatten(0, 1), low, sums);
  // Not logsumexp, which calls the sum of infinite logits infinite; it is NaN (inf - inf).
  const at::Tensor peak = rows_with_pairs.detach().amax(-1, /*keepdim=*/true);
  const at::Tensor lse = rows_with_pairs.sub(peak)
                             .exp()
                             .sum(-1, /*keepdim=*/true)
                             .log()
                             .add(peak)
                             .masked_fill(empty, kMaskedLogit);
  const at::ScalarType type = accumulation_type(low);
  return {out.to(low).view({batch, 1, heads, kv.v.size(3)}), lse.to(type).view({batch, 1, heads}),
          group_sum(probs.detach().to(type).view({batch, 1, heads, rows_loaded}), kv_heads)};
}

}  // namespace nsa
