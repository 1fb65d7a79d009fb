#include "nsa/ops/select/positions.h"

#include <ATen/ATen.h>

#include <sstream>

namespace nsa {

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
  const at::Tensor last = t.floor_divide(sel_block_size).unsqueeze(-1).unsqueeze(-1);
  return block_idx.lt(-1).logical_or_(block_idx.gt(last)).sum();
}

}  // namespace nsa
