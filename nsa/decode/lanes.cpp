#include "nsa/decode/lanes.h"

#include <ATen/ATen.h>

namespace nsa {

at::Tensor first_lanes(const at::Tensor& count, int64_t width) {
  const at::Tensor lane = at::arange(width, count.options());
  return at::where(lane.lt(count.unsqueeze(-1)), lane, -1).unsqueeze(1);
}

at::Tensor last_lanes(const at::Tensor& t, int64_t width) {
  const at::Tensor position = t.unsqueeze(-1).add(at::arange(1 - width, 1, t.options()));
  return position.clamp_min(-1).unsqueeze(1);
}

at::Tensor range_lanes(const at::Tensor& ranges, const at::Tensor& t, int64_t width) {
  const at::Tensor limit = t.add(1).view({-1, 1, 1});
  const at::Tensor clipped = at::minimum(ranges.to(at::kLong).clamp_min(0), limit.unsqueeze(-1));
  const auto [start, order] = clipped.select(-1, 0).sort(-1);
  const at::Tensor end = clipped.select(-1, 1).gather(-1, order);
  // Each interval keeps what no earlier one reached.
  const at::Tensor reached = at::constant_pad_nd(std::get<0>(end.cummax(-1)), {1, 0}, 0);
  const int64_t num_ranges = ranges.size(2);
  const at::Tensor own_start = at::maximum(start, reached.narrow(-1, 0, num_ranges));
  const at::Tensor length = end.sub(own_start).clamp_min_(0);
  const at::Tensor until = length.cumsum(-1);
  const at::Tensor lane =
      at::arange(width, t.options()).expand({ranges.size(0), ranges.size(1), width}).contiguous();
  const at::Tensor interval = at::searchsorted(until, lane, /*out_int32=*/false, /*right=*/true);
  const at::Tensor known = interval.lt(num_ranges);
  const at::Tensor place = interval.clamp_max(num_ranges - 1);
  // The first token of an interval minus the first lane it has.
  const at::Tensor shift = own_start.sub(until.sub(length)).gather(-1, place);
  return at::where(known, lane.add(shift), -1);
}

}  // namespace nsa
