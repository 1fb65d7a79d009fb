#include "nsa/ops/attention/attention_chunks.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/ops/common/check.h"

namespace nsa {
namespace {

constexpr int64_t kCudaLogits = int64_t{1} << 27;  // values a chunk
constexpr int64_t kCpuLogits = int64_t{1} << 23;
constexpr int64_t kMaxQueries =
    512;  // small enough to profit from causality, large enough to launch
constexpr int64_t kMinWindowQueries = 128;
/// A CPU library adds up in another order in the columns behind its last whole tile (oneMKL on an
/// AMD EPYC: tiles of 4 and of 12), so products have none: of columns that any tile divides.
constexpr int64_t kColumns = 48;

int64_t whole_tiles(int64_t columns) { return (columns + kColumns - 1) / kColumns * kColumns; }

}  // namespace

std::vector<QueryChunk> query_chunks(const at::Tensor& q, const at::Tensor& k,
                                     const KeyMask& mask) {
  const int64_t num_queries = q.size(1), num_keys = k.size(1);
  const int64_t budget = q.is_cuda() ? kCudaLogits : kCpuLogits;
  const bool is_window = mask.kind == KeyMask::kWindow;
  const int64_t window = std::min(mask.extent, num_keys);
  const int64_t reach = is_window ? std::min(num_keys, window + kMaxQueries) : num_keys;
  const int64_t columns = q.is_cpu() ? whole_tiles(reach) : reach;
  const int64_t per_query = std::max<int64_t>(1, q.size(0) * q.size(2) * columns);
  int64_t step = std::clamp<int64_t>(budget / per_query, 1, kMaxQueries);
  if (is_window) {
    step = std::min(step, std::max(mask.extent, kMinWindowQueries));
  }
  std::vector<QueryChunk> chunks;
  for (int64_t begin = 0; begin < num_queries; begin += step) {
    const int64_t count = std::min(step, num_queries - begin);
    chunks.push_back({begin, count, mask.span(begin, count, num_keys)});
  }
  return chunks;
}

GroupedHeads::GroupedHeads(const at::Tensor& q, const at::Tensor& k)
    : batch(q.size(0)),
      num_kv_heads(k.size(2)),
      group_size(q.size(2) / k.size(2)),
      sums(sum_type(q)),
      product_type(q.is_cuda() && q.scalar_type() != at::kFloat ? q.scalar_type() : sums) {}

at::Tensor GroupedHeads::rows(const at::Tensor& x, const QueryChunk& chunk) const {
  const int64_t dim = x.size(3);
  return x.narrow(1, chunk.begin, chunk.count)
      .reshape({batch, chunk.count, num_kv_heads, group_size, dim})
      .permute({0, 2, 3, 1, 4})
      .to(product_type)
      .reshape({batch * num_kv_heads, group_size * chunk.count, dim});
}

void GroupedHeads::store_rows(const at::Tensor& rows, const QueryChunk& chunk,
                              at::Tensor& y) const {
  const int64_t dim = y.size(3);
  y.narrow(1, chunk.begin, chunk.count)
      .view({batch, chunk.count, num_kv_heads, group_size, dim})
      .copy_(split(rows, chunk).permute({0, 3, 1, 2, 4}));
}

at::Tensor GroupedHeads::keys(const at::Tensor& x) const {
  return x.permute({0, 2, 1, 3})
      .to(product_type)
      .reshape({batch * num_kv_heads, x.size(1), x.size(3)})
      .contiguous();
}

at::Tensor GroupedHeads::from_keys(const at::Tensor& x, const at::Tensor& like) const {
  return x.view({batch, num_kv_heads, x.size(1), x.size(2)})
      .permute({0, 2, 1, 3})
      .to(like.scalar_type())
      .contiguous();
}

at::Tensor GroupedHeads::split(const at::Tensor& x, const QueryChunk& chunk) const {
  return x.view({batch, num_kv_heads, group_size, chunk.count, x.size(-1)});
}

at::Tensor GroupedHeads::flatten(const at::Tensor& x, const QueryChunk& chunk) const {
  return x.reshape({batch * num_kv_heads, group_size * chunk.count, x.size(-1)});
}

at::Tensor GroupedHeads::product(const at::Tensor& a, const at::Tensor& b) const {
  return product_type == sums ? product_of(a, b) : at::bmm(a, b, sums);
}

at::Tensor GroupedHeads::logits(const at::Tensor& rows, const at::Tensor& keys,
                                double scale) const {
  const int64_t width = keys.size(1), missing = whole_tiles(width) - width;
  if (!keys.is_cpu() || missing == 0) return product(rows, keys.transpose(1, 2)).mul_(scale);
  const at::Tensor padded = at::constant_pad_nd(keys, {0, 0, 0, missing});
  return product(rows, padded.transpose(1, 2)).narrow(2, 0, width).mul(scale);
}

at::Tensor GroupedHeads::to_product_type(const at::Tensor& x) const { return x.to(product_type); }

}  // namespace nsa
