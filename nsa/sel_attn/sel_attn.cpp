#include "nsa/sel_attn/sel_attn.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

#include "nsa/core/check.h"
#include "nsa/core/chunked_attention.h"
#include "nsa/core/operator_call.h"
#include "nsa/sel_attn/gathered_attention.h"

namespace nsa {
namespace {

/// Up to here a mask over all keys costs less than gathering each row's own.
constexpr int64_t kMaxMaskedKeys = 4096;

std::tuple<at::Tensor, at::Tensor> sel_attn_op(const at::Tensor& q, const at::Tensor& k,
                                               const at::Tensor& v, const at::Tensor& ranges,
                                               int64_t first_position) {
  const ArgumentCheck check("sel_attn");
  check.qkv(q, "k", k, "v", v);
  check.sizes("ranges", ranges, {q.size(0), q.size(1), k.size(2), -1, 2}, "[B, S, Hkv, K, 2]");
  check.dtype("ranges", ranges, at::kInt);
  check.same_device("ranges", ranges, "q", q);
  check.at_least("first_position", first_position, 0);
  check.at_least("N", k.size(1), first_position + q.size(1));
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  if (k.size(1) > kMaxMaskedKeys) {
    auto [out, lse] = gathered_attention(q, k, v, ranges, first_position, scale);
    return {out, lse};
  }
  AttentionResult result =
      chunked_attention(q, k, v, {KeyMask::kRanges, first_position, 0, 1, ranges}, scale);
  return {result.out, result.lse};
}

}  // namespace

std::pair<at::Tensor, at::Tensor> sel_attn(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const at::Tensor& ranges,
                                           int64_t first_position) {
  static const auto op = find_operator<decltype(sel_attn_op)>("nsa::sel_attn");
  auto [out, lse] = op.call(q, k, v, ranges, first_position);
  return {out, lse};
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def(
      "sel_attn(Tensor q, Tensor k, Tensor v, Tensor ranges, int first_position) "
      "-> (Tensor out, Tensor lse)",
      TORCH_FN(nsa::sel_attn_op));
}
