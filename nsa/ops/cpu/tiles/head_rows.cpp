#include "nsa/ops/cpu/tiles/head_rows.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace nsa::cpu {

HeadRows::HeadRows(const at::Tensor& x)
    : data_(const_cast<void*>(x.const_data_ptr())),
      type_(x.scalar_type()),
      strides_{x.stride(0), x.stride(1), x.stride(2), x.stride(3)},
      dim_(x.size(3)) {}

template <typename Scalar, typename Step>
void HeadRows::for_rows(int64_t b, int64_t token, int64_t count, int64_t head, int64_t heads,
                        const Step& step) const {
  for (int64_t t = 0, i = 0; t < count; ++t)
    for (int64_t h = 0; h < heads; ++h, ++i) step(i, at_row<Scalar>(b, token + t, head + h));
}

namespace {

/// Calls f with a value of the element type that `type` names.
template <typename F>
void with_type(at::ScalarType type, const F& f) {
  if (type == at::kFloat) return f(float{});
  if (type == at::kBFloat16) return f(at::BFloat16{});
  TORCH_INTERNAL_ASSERT(type == at::kHalf, "CPU kernels read fp32, bf16 and fp16");
  f(at::Half{});
}

}  // namespace

void HeadRows::read(int64_t b, int64_t token, int64_t count, int64_t head, int64_t heads,
                    float* out, int64_t row) const {
  with_type(type_, [&](auto zero) {
    using Scalar = decltype(zero);
    for_rows<Scalar>(b, token, count, head, heads, [&](int64_t i, const Scalar* from) {
      float* to = out + i * row;
      if (strides_[3] == 1) {
        for (int64_t e = 0; e < dim_; ++e) to[e] = static_cast<float>(from[e]);
      } else {
        for (int64_t e = 0; e < dim_; ++e) to[e] = static_cast<float>(from[e * strides_[3]]);
      }
      std::fill(to + dim_, to + row, 0.0F);
    });
  });
}

void HeadRows::write(int64_t b, int64_t token, int64_t count, int64_t head, int64_t heads,
                     const float* in, int64_t row) const {
  with_type(type_, [&](auto zero) {
    using Scalar = decltype(zero);
    for_rows<Scalar>(b, token, count, head, heads, [&](int64_t i, Scalar* to) {
      const float* from = in + i * row;
      for (int64_t e = 0; e < dim_; ++e) to[e * strides_[3]] = static_cast<Scalar>(from[e]);
    });
  });
}

}  // namespace nsa::cpu
