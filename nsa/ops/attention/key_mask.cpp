#include "nsa/ops/attention/key_mask.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nsa {
namespace {

/// Intervals [B, c, Hkv, K, 2] to a mask over keys [begin, end): +1 at every start, -1 at every
/// end, running sum > 0. Additions of integers commute, so the result does not depend on their
/// order.
at::Tensor mask_of_ranges(const at::Tensor& ranges, KeyMask::Span span) {
  const int64_t width = span.end - span.begin;
  const at::Tensor limits = ranges.sub(span.begin).clamp_(0, width).to(at::kLong);
  const at::Tensor start = limits.select(-1, 0);
  const at::Tensor end = at::max(limits.select(-1, 1), start);  // an end before its start: empty
  std::vector<int64_t> shape = start.sizes().vec();
  shape.back() = width + 1;
  at::Tensor delta = at::zeros(shape, ranges.options());
  const at::Tensor one = at::ones_like(start, ranges.options());
  delta.scatter_add_(-1, start, one);
  delta.scatter_add_(-1, end, one.neg());
  return delta.cumsum(-1, at::kInt).narrow(-1, 0, width).gt(0);
}

}  // namespace

KeyMask::Span KeyMask::span(int64_t query, int64_t count, int64_t num_keys) const {
  const int64_t first = first_position + query;
  const int64_t last = first + count - 1;
  Span span{0, 0};
  switch (kind) {
    case kVisibleBlocks:
      span.end = last + 1 < extent ? 0 : (last + 1 - extent) / stride + 1;
      break;
    case kWindow:
      span = {first < extent ? 0 : first - extent + 1, last + 1};
      break;
    case kRanges:
      span.end = last + 1;
      break;
  }
  span.end = std::min(span.end, num_keys);
  span.begin = std::min(span.begin, span.end);
  return span;
}

at::Tensor KeyMask::allowed(int64_t query, int64_t count, Span span,
                            const at::Device& device) const {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const int64_t first = first_position + query;
  const at::Tensor t = at::arange(first, first + count, options).unsqueeze(-1);
  const at::Tensor key = at::arange(span.begin, span.end, options);
  if (kind == kVisibleBlocks) return key.mul(stride).add_(extent - 1).le(t);
  const at::Tensor causal = key.le(t);
  if (kind == kWindow) return causal.logical_and_(key.gt(t.sub(extent)));
  const at::Tensor chosen = mask_of_ranges(ranges.narrow(1, query, count), span);
  return chosen.permute({0, 2, 1, 3}).unsqueeze(2).logical_and(causal);
}

KeyMask compressed_mask(const NsaConfig& config) {
  return {KeyMask::kVisibleBlocks, 0, config.block_size, config.block_stride, {}};
}

KeyMask window_mask(const NsaConfig& config) { return {KeyMask::kWindow, 0, config.window, 1, {}}; }

}  // namespace nsa
