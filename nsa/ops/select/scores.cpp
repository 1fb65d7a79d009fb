#include "nsa/ops/select/scores.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"

namespace nsa {
namespace {

at::Tensor group_sum_op(const at::Tensor& probs_in, int64_t num_kv_heads) {
  const ArgumentCheck check("group_sum");
  check.floating("probs", probs_in);
  check.at_least("num_kv_heads", num_kv_heads, 1);
  if (probs_in.dim() < 2) check.fail("probs", "of shape [..., Hq, N_c]", "a smaller rank");
  check.multiple("Hq", probs_in.size(-2), num_kv_heads, "num_kv_heads");
  const at::NoGradGuard no_grad;
  const int64_t group_size = probs_in.size(-2) / num_kv_heads;
  const at::Tensor probs = probs_in.detach().unflatten(-2, {num_kv_heads, group_size});
  at::Tensor sum = probs.select(-2, 0).clone();
  for (int64_t head = 1; head < group_size; ++head) sum.add_(probs.select(-2, head));
  return sum;
}

at::Tensor block_scores_op(const at::Tensor& group_probs, int64_t num_sel_blocks,
                           int64_t block_size, int64_t block_stride, int64_t sel_block_size) {
  const ArgumentCheck check("block_scores");
  check.floating("group_probs", group_probs);
  if (group_probs.dim() < 1) check.fail("group_probs", "of shape [..., N_c]", "rank 0");
  check.at_least("num_sel_blocks", num_sel_blocks, 0);
  check.at_least("block_stride", block_stride, 1);
  check.multiple("block_size", block_size, block_stride, "block_stride");
  check.multiple("sel_block_size", sel_block_size, block_stride, "block_stride");
  const at::NoGradGuard no_grad;
  const int64_t m = block_size / block_stride;      // strides a compressed block covers
  const int64_t r = sel_block_size / block_stride;  // strides a selection block covers
  const int64_t num_blocks = std::min(group_probs.size(-1), num_sel_blocks * r);
  std::vector<int64_t> shape = group_probs.sizes().vec();
  shape.back() = m - 1 + num_sel_blocks * r;
  at::Tensor padded = at::zeros(shape, group_probs.options());
  padded.narrow(-1, m - 1, num_blocks).copy_(group_probs.detach().narrow(-1, 0, num_blocks));
  shape.back() = num_sel_blocks;
  at::Tensor scores = at::zeros(shape, group_probs.options());
  if (num_sel_blocks == 0) return scores;
  // Compressed block i = j*r - (m-1) + offset, ascending, for all j at once. The product is rounded
  // before the sum (no fused multiply-add), so equal patterns give equal bits at every j.
  for (int64_t offset = 0; offset < m + r - 1; ++offset) {
    const int64_t weight = std::min(offset + 1, r) - std::max<int64_t>(offset - m + 1, 0);
    const at::Tensor probs = padded.slice(-1, offset, offset + (num_sel_blocks - 1) * r + 1, r);
    scores.add_(weight == 1 ? probs : probs.mul(weight));
  }
  return scores;
}

}  // namespace

at::Tensor group_sum(const at::Tensor& probs, int64_t num_kv_heads) {
  static const auto op = find_operator<decltype(group_sum_op)>("nsa::group_sum");
  return op.call(probs, num_kv_heads);
}

at::Tensor block_scores(const at::Tensor& group_probs, int64_t num_sel_blocks,
                        const NsaConfig& config) {
  static const auto op = find_operator<decltype(block_scores_op)>("nsa::block_scores");
  return op.call(group_probs, num_sel_blocks, config.block_size, config.block_stride,
                 config.sel_block_size);
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def("group_sum(Tensor probs, int num_kv_heads) -> Tensor", TORCH_FN(nsa::group_sum_op));
  m.def(
      "block_scores(Tensor group_probs, int num_sel_blocks, int block_size, int block_stride, "
      "int sel_block_size) -> Tensor",
      TORCH_FN(nsa::block_scores_op));
}
