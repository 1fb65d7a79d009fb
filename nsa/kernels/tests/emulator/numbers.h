#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "nsa/kernels/interval/interval_attention.h"

namespace nsa::kernels::emulator {

inline double value_of(uint16_t bits, bool half) {
  if (half) return double(__half2float(__half(__half_raw{bits})));
  return double(__bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits})));
}
inline uint16_t bits_of(float value, bool half) {
  if (half) return static_cast<__half_raw>(__float2half(value)).x;
  return static_cast<__nv_bfloat16_raw>(__float2bfloat16(value)).x;
}

/// A tensor [B, tokens, heads, dim] of 16-bit numbers whose rows may have gaps between them; gaps
/// are NaN.
struct Numbers {
  Numbers(int batch, int tokens, int heads, int dim, bool half, int gap = 0)
      : half(half),
        head_stride(dim + gap),
        token_stride(heads * head_stride + gap),
        batch_stride(tokens * token_stride + gap),
        dim(dim),
        heads(heads),
        tokens(tokens),
        bits(size_t(batch) * batch_stride, 0xffff) {}

  /// Close to normal.
  Numbers& draw(uint64_t seed, float scale) {
    std::mt19937_64 random(seed);
    for_each([&](uint16_t& x) {
      float sum = 0.f;
      for (int i = 0; i < 4; ++i) sum += float(random() >> 40) / float(1 << 24) - 0.5f;
      x = bits_of(sum * 1.7320508f * scale, half);
    });
    return *this;
  }
  Numbers& fill(float value) {
    for_each([&](uint16_t& x) { x = bits_of(value, half); });
    return *this;
  }
  int64_t place(int b, int token, int head, int column) const {
    return b * batch_stride + token * token_stride + head * head_stride + column;
  }
  double at(int b, int token, int head, int column) const {
    return value_of(bits[place(b, token, head, column)], half);
  }
  void set(int b, int token, int head, int column, float value) {
    bits[place(b, token, head, column)] = bits_of(value, half);
  }
  Strided strided() const { return {bits.data(), batch_stride, token_stride, head_stride}; }

  /// Without gaps.
  std::vector<double> values() const {
    std::vector<double> all;
    for (int b = 0; b < batch(); ++b)
      for (int t = 0; t < tokens; ++t)
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < dim; ++c) all.push_back(at(b, t, h, c));
    return all;
  }
  int batch() const {
    return static_cast<int>(bits.size() / (batch_stride > 0 ? batch_stride : 1));
  }

  template <typename Do>
  void for_each(const Do& apply) {
    for (int b = 0; b < batch(); ++b)
      for (int t = 0; t < tokens; ++t)
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < dim; ++c) apply(bits[place(b, t, h, c)]);
  }

  bool half;
  int64_t head_stride, token_stride, batch_stride;
  int dim, heads, tokens;
  std::vector<uint16_t> bits;
};

}  // namespace nsa::kernels::emulator
