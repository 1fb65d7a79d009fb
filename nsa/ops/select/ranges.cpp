#include "nsa/ops/select/ranges.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"
#include "nsa/ops/select/positions.h"
#include "nsa/ops/select/ranges_loop.h"
#include "nsa/ops/select/ranges_v2.h"

namespace nsa {
namespace {

/// Checks the arguments; returns t as [*, 1, 1].
at::Tensor checked_positions(const char* op, const at::Tensor& block_idx, const at::Tensor& t,
                             int64_t sel_block_size) {
  const ArgumentCheck check(op);
  check.dtype("block_idx", block_idx, at::kInt);
  if (block_idx.dim() < 3) {
    check.fail("block_idx", "of shape [*, Hkv, K] with at least one axis before Hkv",
               "rank " + std::to_string(block_idx.dim()));
  }
  check.at_least("sel_block_size", sel_block_size, 1);
  return row_positions(check, t, "block_idx", block_idx);
}

at::Tensor empty_ranges(const at::Tensor& block_idx, at::Device device) {
  std::vector<int64_t> shape = block_idx.sizes().vec();
  shape.push_back(2);
  return at::zeros(shape, at::TensorOptions().dtype(at::kInt).device(device));
}

/// Host tensors of one conversion: rows [R, Hkv, K], positions [R] on the host, ranges likewise.
struct Rows {
  Rows(const at::Tensor& block_idx, const at::Tensor& position)
      : width(block_idx.size(-1)),
        num_heads(block_idx.size(-2)),
        ranges(empty_ranges(block_idx, at::kCPU)) {
    std::vector<int64_t> leading = block_idx.sizes().vec();
    leading.resize(leading.size() - 2);
    t = position.squeeze(-1).squeeze(-1).expand(leading).to(at::kCPU).contiguous();
  }
  void write(int64_t row, int64_t head, const int32_t* ids, int64_t sel_block_size) {
    int32_t* out = ranges.mutable_data_ptr<int32_t>() + (row * num_heads + head) * width * 2;
    write_row_ranges(ids, width, t.const_data_ptr<int64_t>()[row], sel_block_size, out);
  }
  int64_t width, num_heads;
  at::Tensor ranges, t;
};

at::Tensor ranges_v1_op(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size) {
  Rows rows(block_idx, checked_positions("ranges_v1", block_idx, t, sel_block_size));
  if (rows.ranges.numel() == 0) return empty_ranges(block_idx, block_idx.device());
  const at::Tensor flat = block_idx.reshape({rows.t.numel(), rows.num_heads, rows.width});
  for (int64_t row = 0; row < flat.size(0); ++row) {
    for (int64_t head = 0; head < rows.num_heads; ++head) {
      const at::Tensor ids = flat.select(0, row).select(0, head).to(at::kCPU).contiguous();
      rows.write(row, head, ids.const_data_ptr<int32_t>(), sel_block_size);
    }
  }
  return rows.ranges.to(block_idx.device());
}

at::Tensor ranges_v1_bulk_op(const at::Tensor& block_idx, const at::Tensor& t,
                             int64_t sel_block_size) {
  Rows rows(block_idx, checked_positions("ranges_v1_bulk", block_idx, t, sel_block_size));
  const at::Tensor host = block_idx.to(at::kCPU).contiguous();
  const int32_t* ids = host.const_data_ptr<int32_t>();
  for (int64_t row = 0; row < rows.t.numel(); ++row) {
    for (int64_t head = 0; head < rows.num_heads; ++head, ids += rows.width) {
      rows.write(row, head, ids, sel_block_size);
    }
  }
  return rows.ranges.to(block_idx.device());
}

at::Tensor ranges_v2_op(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size) {
  const at::Tensor position = checked_positions("ranges_v2", block_idx, t, sel_block_size);
  if (block_idx.numel() == 0) return empty_ranges(block_idx, block_idx.device());
  const at::AutoDispatchBelowADInplaceOrView no_autograd;  // integers: nothing to record
  return vectorised_ranges(block_idx, position, sel_block_size);
}

}  // namespace

std::string to_string(RangesVersion version) {
  switch (version) {
    case RangesVersion::kV1:
      return "v1";
    case RangesVersion::kV1Bulk:
      return "v1_bulk";
    case RangesVersion::kV2:
      return "v2";
  }
  TORCH_INTERNAL_ASSERT(false, "version without a name");
}

at::Tensor ranges_v1(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size) {
  static const auto op = find_operator<decltype(ranges_v1_op)>("nsa::ranges_v1");
  return op.call(block_idx, t, sel_block_size);
}

at::Tensor ranges_v1_bulk(const at::Tensor& block_idx, const at::Tensor& t,
                          int64_t sel_block_size) {
  static const auto op = find_operator<decltype(ranges_v1_bulk_op)>("nsa::ranges_v1_bulk");
  return op.call(block_idx, t, sel_block_size);
}

at::Tensor ranges_v2(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size) {
  static const auto op = find_operator<decltype(ranges_v2_op)>("nsa::ranges_v2");
  return op.call(block_idx, t, sel_block_size);
}

at::Tensor block_ranges(RangesVersion version, const at::Tensor& block_idx, const at::Tensor& t,
                        int64_t sel_block_size) {
  switch (version) {
    case RangesVersion::kV1:
      return ranges_v1(block_idx, t, sel_block_size);
    case RangesVersion::kV1Bulk:
      return ranges_v1_bulk(block_idx, t, sel_block_size);
    case RangesVersion::kV2:
      return ranges_v2(block_idx, t, sel_block_size);
  }
  TORCH_INTERNAL_ASSERT(false, "version without a function");
}

}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def("ranges_v1(Tensor block_idx, Tensor t, int sel_block_size) -> Tensor",
        TORCH_FN(nsa::ranges_v1_op));
  m.def("ranges_v1_bulk(Tensor block_idx, Tensor t, int sel_block_size) -> Tensor",
        TORCH_FN(nsa::ranges_v1_bulk_op));
  m.def("ranges_v2(Tensor block_idx, Tensor t, int sel_block_size) -> Tensor",
        TORCH_FN(nsa::ranges_v2_op));
}
