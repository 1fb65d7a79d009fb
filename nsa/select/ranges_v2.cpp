#include "nsa/select/ranges_v2.h"

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
// maximum rises by more than 1, and there the maximum before it is the last id of the run before.
// So each start writes two neighbours of a flat row of boundaries: [.., end of run r-1, start of
// run r, ..]; the end of the row acts as one more start. Everything else writes to slot 0, which is
// cut off. Boundaries are stored as id - 1 so that an unused slot (-1) becomes token 0.
at::Tensor vectorised_ranges(const at::Tensor& block_idx, const at::Tensor& t,
                             int64_t sel_block_size) {
  const int64_t width = block_idx.size(-1);
  const at::Tensor last = running_last_kept(block_idx, t.floor_divide(sel_block_size));
  const at::Tensor pairs = last.unfold(-1, 2, 1);  // [*, K + 1, 2]: before, at
  const at::Tensor starts = pairs.select(-1, 1).sub(pairs.select(-1, 0)).gt(1);
  const at::Tensor run = starts.cumsum(-1);  // 1-based
  const at::Tensor zero_one = at::arange(2, block_idx.options());
  // Run r ends at slot 2(r+1) and starts at slot 2r + 1, for r = 1, 2, ...
  const at::Tensor slot = at::add(zero_one, run.unsqueeze(-1), 2).mul_(starts.unsqueeze(-1));
  const at::Tensor value = at::sub(pairs, zero_one);
  value.select(-1, 1).select(-1, width).fill_(-1);  // the end of the row starts nothing

  std::vector<int64_t> shape = block_idx.sizes().vec();
  shape.back() = 2 * width + 4;
  at::Tensor boundary = at::full(shape, -1, block_idx.options());
  boundary.scatter_(-1, slot.flatten(-2), value.flatten(-2));
  // Slots: 0 and 1 unused, 2 the end of nothing, then start and end of each run.
  const at::Tensor token =
      at::rsub(boundary.narrow(-1, 3, 2 * width), sel_block_size, -sel_block_size);
  at::Tensor ranges = at::empty_like(token, at::MemoryFormat::Contiguous);
  at::minimum_out(ranges, token, t.add(1));
  return ranges.unflatten(-1, {width, 2});
}

}  // namespace nsa
