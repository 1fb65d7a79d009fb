#include "nsa/decode/cache/kv_rows.h"

#include <ATen/ATen.h>

#include "nsa/ops/common/check.h"

namespace nsa {

KvRows KvRows::allocate(const NsaConfig& config, int64_t num_rows, at::TensorOptions options) {
  return {at::empty({num_rows, config.num_kv_heads, config.qk_head_dim}, options),
          at::empty({num_rows, config.num_kv_heads, config.v_head_dim}, options),
          options.dtype().toScalarType()};
}

void KvRows::widen() {
  const auto wide = k.options().dtype(wider_type(type));
  k = at::empty(k.sizes(), wide);
  v = at::empty(v.sizes(), wide);
}

void KvRows::write(const at::Tensor& row, const at::Tensor& new_k, const at::Tensor& new_v) {
  k.index_copy_(0, row, new_k.to(k.scalar_type()));
  v.index_copy_(0, row, new_v.to(v.scalar_type()));
}

int64_t KvRows::bytes() const { return static_cast<int64_t>(k.nbytes() + v.nbytes()); }

LoadedKv load(const KvRows& from, const at::Tensor& row_in, LoadCount& count) {
  const int64_t batch = row_in.size(0), heads = from.k.size(1), rows_loaded = row_in.size(2);
  const at::Tensor row = row_in.expand({batch, heads, rows_loaded});
  const at::Tensor masked = row.lt(0);
  const at::Tensor head = at::arange(heads, row.options()).unsqueeze(-1);
  const at::Tensor address = row.clamp_min(0).mul_(heads).add_(head).flatten();
  const auto fetch = [&](const at::Tensor& x) {
    return x.flatten(0, 1)
        .index_select(0, address)
        .view({batch, heads, rows_loaded, x.size(2)})
        .masked_fill_(masked.unsqueeze(-1), 0.0)
        .to(from.type);
  };
  const at::Tensor hidden = masked.sum(-1), fetched = row.ge(0).sum(-1);
  count.masked = count.masked.defined() ? count.masked.add(hidden) : hidden;
  if (!count.loaded.defined()) {
    count.loaded = fetched;
    count.repeated = at::zeros_like(fetched);
  } else {
    count.repeated = count.repeated.add(fetched);
  }
  return {fetch(from.k), fetch(from.v), masked};
}

}  // namespace nsa
