#include "nsa/decode/step/loaded_positions.h"

#include <ATen/ATen.h>

#include <limits>

#include "nsa/ops/selected/row_tokens.h"

namespace nsa {

at::Tensor first_positions(const at::Tensor& count, int64_t width) {
  const at::Tensor index = at::arange(width, count.options());
  return at::where(index.lt(count.unsqueeze(-1)), index, -1).unsqueeze(1);
}

at::Tensor last_positions(const at::Tensor& t, int64_t width) {
  const at::Tensor position = t.unsqueeze(-1).add(at::arange(1 - width, 1, t.options()));
  return position.clamp_min(-1).unsqueeze(1);
}

at::Tensor range_positions(const at::Tensor& ranges, const at::Tensor& t, int64_t width) {
  const int64_t batch = ranges.size(0), heads = ranges.size(1), rows = batch * heads;
  if (width == 0) return at::empty({batch, heads, 0}, t.options());
  const at::Tensor upto_t = at::minimum(ranges, t.add(1).to(at::kInt).view({-1, 1, 1, 1}));
  // Every row has its own t, and the ranges end there already.
  constexpr int64_t kNoFurtherLimit = std::numeric_limits<int32_t>::max();
  const RowTokens tokens = row_tokens(upto_t.unsqueeze(1), kNoFurtherLimit);
  const at::Tensor place = at::arange(width, t.options());
  return padded_tokens(tokens, at::arange(rows, t.options()), width)
      .masked_fill_(place.ge(tokens.length.unsqueeze(1)), -1)
      .view({batch, heads, width});
}

}  // namespace nsa
