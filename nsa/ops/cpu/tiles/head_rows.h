#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace nsa::cpu {

inline int64_t round_up(int64_t x, int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

/// A tensor [B, S, H, D] of fp32, bf16 or fp16 with any strides, read and written as fp32 rows.
class HeadRows {
 public:
  explicit HeadRows(const at::Tensor& x);

  /// Rows of `heads` heads of `count` tokens, token-major -> out [count * heads, row], zeros behind
  /// the D values.
  void read(int64_t b, int64_t token, int64_t count, int64_t head, int64_t heads, float* out,
            int64_t row) const;
  /// The inverse, rounded once; the tensor must be a result of the caller's.
  void write(int64_t b, int64_t token, int64_t count, int64_t head, int64_t heads, const float* in,
             int64_t row) const;

 private:
  template <typename Scalar>
  Scalar* at_row(int64_t b, int64_t token, int64_t head) const {
    return static_cast<Scalar*>(data_) + b * strides_[0] + token * strides_[1] + head * strides_[2];
  }
  template <typename Scalar, typename Step>
  void for_rows(int64_t b, int64_t token, int64_t count, int64_t head, int64_t heads,
                const Step& step) const;

  void* data_;
  at::ScalarType type_;
  int64_t strides_[4];
  int64_t dim_;
};

}  // namespace nsa::cpu
