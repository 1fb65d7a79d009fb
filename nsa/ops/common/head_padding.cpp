#include "nsa/ops/common/head_padding.h"

#include <ATen/ATen.h>

#include <vector>

namespace nsa {

kernels::HeadDims computed_head_dims(const at::Tensor& q, const at::Tensor& v) {
  return kernels::computed_head_dims(q.size(-1), v.size(-1));
}

bool pads_heads(const at::Tensor& q, const at::Tensor& v) {
  return !(computed_head_dims(q, v) == kernels::HeadDims{q.size(-1), v.size(-1)});
}

// Not constant_pad_nd, whose result may have the order of axes of an image.
at::Tensor padded_heads(const at::Tensor& x, int64_t width) {
  const int64_t own = x.size(-1);
  if (own == width) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = width;
  const at::Tensor wide = at::empty(sizes, x.options());
  wide.narrow(-1, 0, own).copy_(x);
  wide.narrow(-1, own, width - own).zero_();
  return wide;
}

at::Tensor narrowed_heads(const at::Tensor& x, int64_t width) {
  return x.size(-1) == width ? x : x.narrow(-1, 0, width).contiguous();
}

}  // namespace nsa
