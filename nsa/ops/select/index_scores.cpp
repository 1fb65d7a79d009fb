#include "nsa/ops/select/index_scores.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

/// Pairs of query and key whose products exist at one time.
constexpr int64_t kPairs = int64_t{1} << 26;
constexpr double kUnseen = -std::numeric_limits<double>::infinity();

/// q [B, R, di], k [B, di, N] -> [B, R, N], summed and kept in the type of scores. Half types are
/// multiplied as they are where the device has products of them in fp32.
at::Tensor products(const at::Tensor& q, const at::Tensor& k, at::ScalarType type) {
  if (q.is_cuda() && at::isReducedFloatingType(q.scalar_type())) return at::bmm(q, k, type);
  return product_of(q.to(type), k.to(type));
}

/// Of queries whose last one stands at the last key: [B, R, Hkv, blocks].
at::Tensor scores_of(const at::Tensor& q_idx, const at::Tensor& k_idx, int64_t block_size) {
  const int64_t batch = q_idx.size(0), count = q_idx.size(1), heads = q_idx.size(2),
                width = q_idx.size(3), keys = k_idx.size(1),
                blocks = (keys + block_size - 1) / block_size;
  at::Tensor dots =
      products(q_idx.reshape({batch, count * heads, width}), k_idx.transpose(1, 2), sum_type(q_idx))
          .div_(std::sqrt(static_cast<double>(width)))
          .view({batch, count, heads, keys});
  // Only the last `count` keys are behind some of these queries.
  const at::Tensor behind =
      at::ones({count, count}, dots.options().dtype(at::kBool)).triu(1).unsqueeze(1);
  dots.narrow(-1, keys - count, count).masked_fill_(behind, kUnseen);
  dots = at::constant_pad_nd(dots, {0, blocks * block_size - keys}, kUnseen);
  return dots.view({batch, count, heads, blocks, block_size}).amax(-1);
}

}  // namespace

at::Tensor index_scores(const at::Tensor& q_idx, const at::Tensor& k_idx, int64_t block_size,
                        int64_t first_position) {
  const ArgumentCheck check("index_scores");
  check.rank("q_idx", q_idx, 4, "[B, S, Hkv, di]");
  check.rank("k_idx", k_idx, 3, "[B, first_position + S, di]");
  check.floating("q_idx", q_idx);
  check.same_dtype("k_idx", k_idx, "q_idx", q_idx);
  check.same_device("k_idx", k_idx, "q_idx", q_idx);
  check.at_least("block_size", block_size, 1);
  check.at_least("first_position", first_position, 0);
  check.at_least("di of q_idx", q_idx.size(3), 1);
  const int64_t batch = q_idx.size(0), count = q_idx.size(1), heads = q_idx.size(2),
                tokens = first_position + count;
  check.sizes("k_idx", k_idx, {batch, tokens, q_idx.size(3)}, "[B, first_position + S, di]");
  const at::NoGradGuard no_grad;
  const int64_t blocks = (tokens + block_size - 1) / block_size;
  at::Tensor all =
      at::full({batch, count, heads, blocks}, kUnseen, q_idx.options().dtype(sum_type(q_idx)));
  if (all.numel() == 0) return all;
  const int64_t rows = std::max<int64_t>(1, kPairs / (batch * heads * tokens));
  for (int64_t begin = 0; begin < count; begin += rows) {
    const int64_t now = std::min(rows, count - begin);
    const at::Tensor part = scores_of(q_idx.narrow(1, begin, now),
                                      k_idx.narrow(1, 0, first_position + begin + now), block_size);
    all.narrow(1, begin, now).narrow(-1, 0, part.size(-1)).copy_(part);
  }
  return all;
}

}  // namespace nsa
