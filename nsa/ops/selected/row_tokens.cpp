#include "nsa/ops/selected/row_tokens.h"

#include <ATen/ATen.h>

#include <optional>
#include <tuple>

namespace nsa {
namespace {

/// Largest end of the intervals before each one; 0 before the first.
at::Tensor reach_before(const at::Tensor& end) {
  at::Tensor reach = at::zeros_like(end);
  const int64_t behind_first = end.size(1) - 1;
  if (behind_first > 0) {
    reach.narrow(1, 1, behind_first)
        .copy_(std::get<0>(end.narrow(1, 0, behind_first).cummax(1)).clamp_min(0));
  }
  return reach;
}

}  // namespace

RowTokens row_tokens(const at::Tensor& ranges, int64_t first_position) {
  const int64_t queries = ranges.size(1), width = ranges.size(3);
  const int64_t rows = ranges.size(0) * ranges.size(2) * queries;
  const at::Tensor by_row = ranges.permute({0, 2, 1, 3, 4}).to(at::kLong);
  const at::Tensor limit = at::arange(first_position + 1, first_position + 1 + queries,
                                      by_row.options())
                               .unsqueeze(-1);  // [S, 1], behind the last token of a query
  at::Tensor begin = by_row.select(-1, 0).clamp_min(0).reshape({rows, width});
  at::Tensor end = at::minimum(by_row.select(-1, 1), limit).reshape({rows, width});
  at::Tensor order;
  std::tie(begin, order) = begin.sort(std::optional<bool>(true), /*dim=*/1);
  end = end.gather(1, order);
  begin = at::maximum(begin, reach_before(end));
  const at::Tensor size = end.sub(begin).clamp_min_(0);
  const at::Tensor stop = size.cumsum(1);
  const at::Tensor length = width == 0 ? at::zeros({rows}, stop.options()) : stop.select(1, -1);
  return {stop, begin.sub_(stop).add_(size), length.contiguous()};
}

at::Tensor padded_tokens(const RowTokens& tokens, const at::Tensor& rows, int64_t longest) {
  const at::Tensor place = at::arange(longest, rows.options()).expand({rows.size(0), longest});
  const at::Tensor stop = tokens.stop.index_select(0, rows);
  const at::Tensor interval = at::searchsorted(stop, place.contiguous(), /*out_int32=*/false,
                                               /*right=*/true)
                                  .clamp_max_(stop.size(1) - 1);
  const at::Tensor token = tokens.offset.index_select(0, rows).gather(1, interval).add_(place);
  const at::Tensor length = tokens.length.index_select(0, rows).unsqueeze(1);
  // Padding points at many tokens instead of one: the sum of gradients at an index is serial on
  // CUDA, zeros included.
  return at::where(place.lt(length), token, place);
}

at::Tensor flat_tokens(const RowTokens& tokens, const at::Tensor& rows, int64_t total) {
  const at::Tensor stop = tokens.stop.index_select(0, rows);
  const at::Tensor size = at::diff(stop, 1, 1, at::zeros({rows.size(0), 1}, stop.options()));
  const at::Tensor length = tokens.length.index_select(0, rows);
  const at::Tensor row_begin = length.cumsum(0).sub_(length);
  const at::Tensor shift = tokens.offset.index_select(0, rows).sub_(row_begin.unsqueeze(1));
  return at::repeat_interleave(shift.flatten(), size.flatten(), 0, total)
      .add_(at::arange(total, rows.options()));
}

}  // namespace nsa
