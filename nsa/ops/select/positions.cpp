#include "nsa/ops/select/positions.h"

#include <ATen/ATen.h>

#include <sstream>

namespace nsa {
namespace {

/// floor(t / l') as [*, 1, 1].
at::Tensor last_block(const at::Tensor& t, int64_t sel_block_size) {
  return t.floor_divide(sel_block_size).unsqueeze(-1).unsqueeze(-1);
}

/// Ascending ids with every id but the first of its kind moved to the end, as kUnusedPlace.
at::Tensor without_repeats(const at::Tensor& ascending) {
  const int64_t width = ascending.size(-1);
  if (width < 2) return ascending;
  const at::Tensor repeats =
      ascending.narrow(-1, 1, width - 1).eq(ascending.narrow(-1, 0, width - 1));
  at::Tensor ids = ascending.clone();
  ids.narrow(-1, 1, width - 1).masked_fill_(repeats, kUnusedPlace);
  return std::get<0>(ids.sort(-1));
}

}  // namespace

void check_ids_type(const ArgumentCheck& check, const at::Tensor& block_idx) {
  const at::ScalarType type = block_idx.scalar_type();
  if (type != at::kInt && type != at::kLong) {
    check.fail("block_idx", "Int or Long", c10::toString(type));
  }
}

BlockSet block_set(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size) {
  const at::Tensor inside =
      block_idx.ge(0).logical_and_(block_idx.le(last_block(t, sel_block_size)));
  const at::Tensor ids = block_idx.masked_fill(inside.logical_not(), kUnusedPlace).to(at::kInt);
  const at::Tensor set = without_repeats(std::get<0>(ids.sort(-1)));
  return {set.masked_fill(set.eq(kUnusedPlace), -1), count_outside(block_idx, t, sel_block_size)};
}

at::Tensor row_positions(const ArgumentCheck& check, const at::Tensor& t, const char* rows_name,
                         const at::Tensor& rows) {
  check.dtype("t", t, at::kLong);
  check.same_device("t", t, rows_name, rows);
  const at::IntArrayRef leading = rows.sizes().slice(0, rows.dim() - 2);
  bool fits = t.dim() <= static_cast<int64_t>(leading.size());
  for (int64_t axis = 1; fits && axis <= t.dim(); ++axis) {
    const int64_t size = t.size(t.dim() - axis);
    fits = size == 1 || size == leading[leading.size() - axis];
  }
  if (!fits) {
    std::ostringstream want, have;
    want << "broadcastable to " << leading << ", the leading sizes of " << rows_name;
    have << "shape " << t.sizes();
    check.fail("t", want.str(), have.str());
  }
  return t.unsqueeze(-1).unsqueeze(-1);
}

at::Tensor count_outside(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size) {
  return block_idx.lt(-1).logical_or_(block_idx.gt(last_block(t, sel_block_size))).sum();
}

}  // namespace nsa
