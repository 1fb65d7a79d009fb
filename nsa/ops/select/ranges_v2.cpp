#include "nsa/ops/select/ranges_v2.h"

#include <ATen/ATen.h>

#include <limits>

namespace nsa {
namespace {

constexpr int32_t kNone = -2;  // "no id kept yet": further than 1 below id 0
/// Further than 1 above every id; the difference to kNone still fits 32 bits.
constexpr int32_t kEndOfRow = std::numeric_limits<int32_t>::max() - 2;

/// [*, K + 2]: kNone, the greatest id kept up to each place, kEndOfRow.
at::Tensor running_last_kept(const at::Tensor& block_idx, const at::Tensor& current_block) {
  std::vector<int64_t> shape = block_idx.sizes().vec();
  const int64_t width = shape.back();
  shape.back() = width + 2;
  at::Tensor ids = at::full(shape, kNone, block_idx.options());
  ids.narrow(-1, 1, width).copy_(block_idx);
  ids.narrow(-1, 1, width).masked_fill_(block_idx.gt(current_block), kNone);
  at::threshold_(ids, -1, kNone);  // negative ids
  ids.select(-1, width + 1).fill_(kEndOfRow);
  return std::get<0>(at::cummax(ids, -1));
}

}  // namespace

// A run is a maximal stretch of kept ids that follow each other. It starts where the running
// maximum rises by more than 1, and there the maximum before it is the last id of the run before;
// the end of the row acts as one more start. So with runs counted from 1, the place where run r
// starts writes its id to firsts[r] and the id before it to lasts[r] (the last id of run r-1).
// Every other place writes to slot 0, which is not read.
at::Tensor vectorised_ranges(const at::Tensor& block_idx, const at::Tensor& t,
                             int64_t sel_block_size) {
  const int64_t width = block_idx.size(-1);
  const at::Tensor last = running_last_kept(block_idx, t.floor_divide(sel_block_size));
  const at::Tensor before = last.narrow(-1, 0, width + 1), at_place = last.narrow(-1, 1, width + 1);
  const at::Tensor starts = at_place.sub(before).gt(1);
  const at::Tensor slot = starts.cumsum(-1).mul_(starts);

  std::vector<int64_t> shape = block_idx.sizes().vec();
  shape.back() = width + 2;
  at::Tensor firsts = at::zeros(shape, block_idx.options());
  at::Tensor lasts = at::full(shape, -1, block_idx.options());  // so that an unused end is token 0
  firsts.scatter_(-1, slot.narrow(-1, 0, width), at_place);     // not for the end of the row
  lasts.scatter_(-1, slot, before);

  shape.back() = width;
  shape.push_back(2);
  at::Tensor ranges = at::empty(shape, block_idx.options());
  at::Tensor begin = ranges.select(-1, 0), end = ranges.select(-1, 1);
  at::mul_out(begin, firsts.narrow(-1, 1, width), at::scalar_tensor(sel_block_size, at::kInt));
  at::minimum_out(end, at::rsub(lasts.narrow(-1, 2, width), sel_block_size, -sel_block_size),
                  t.add(1));
  return ranges;
}

}  // namespace nsa
