// Gradients that are not finite, once more from attended pairs only: what the passes that do so
// share. One warp a row.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "nsa/kernels/interval/interval_attention.h"

namespace nsa::kernels::sm90 {

/// A row of 16-bit elements; the flag is their type, as one kernel repairs both types.
struct Row {
  uint16_t* data;
  bool half;

  __device__ Row(const void* from, int64_t offset, Element element)
      : data(static_cast<uint16_t*>(const_cast<void*>(from)) + offset),
        half(element == Element::kHalf) {}
  __device__ Row(const Strided& x, Element element, int64_t batch, int64_t token, int64_t head)
      : Row(x.data, batch * x.batch + token * x.token + head * x.head, element) {}
  __device__ float operator[](int i) const {
    return half ? __half2float(__ushort_as_half(data[i]))
                : __bfloat162float(__ushort_as_bfloat16(data[i]));
  }
  __device__ void set(int i, float x) const {
    data[i] =
        half ? __half_as_ushort(__float2half_rn(x)) : __bfloat16_as_ushort(__float2bfloat16_rn(x));
  }
};

/// A pair of a row and a key it attends, by one warp in fp32.
struct Pair {
  float p = 0.f, ds = 0.f;
  __device__ Pair() {}
  /// lse in base 2.
  __device__ Pair(const IntervalAttention& f, const Row& q, const Row& d_out, const Row& k,
                  const Row& v, float lse, float delta) {
    float s = 0.f, dp = 0.f;
    for (int c = threadIdx.x % 32; c < f.qk_head_dim; c += 32) s += q[c] * k[c];
    for (int c = threadIdx.x % 32; c < f.v_head_dim; c += 32) dp += d_out[c] * v[c];
    for (int mask = 16; mask > 0; mask /= 2) {
      s += __shfl_xor_sync(~0u, s, mask);
      dp += __shfl_xor_sync(~0u, dp, mask);
    }
    p = exp2f(s * f.scale * 1.4426950408889634f - lse);
    ds = p * (dp - delta) * f.scale;
  }
};

constexpr int kMaxColumns = 8;  // of a lane: head dims up to 256

__device__ inline bool all_finite(const Row& row, int dim) {
  bool finite = true;
  for (int c = threadIdx.x % 32; c < dim; c += 32) finite &= isfinite(row[c]);
  return __all_sync(~0u, finite);
}

/// Sums of one warp, a column every 32 columns a lane.
struct Columns {
  float sum[kMaxColumns] = {};
  __device__ void add(float factor, const Row& row, int dim) {
    for (int i = 0; i < kMaxColumns; ++i)
      if (i * 32 < dim) sum[i] += factor * row[i * 32 + threadIdx.x % 32];
  }
  __device__ void write(const Row& row, int dim) const {
    for (int i = 0; i < kMaxColumns; ++i)
      if (i * 32 < dim) row.set(i * 32 + threadIdx.x % 32, sum[i]);
  }
  /// Nothing that is added changes it.
  __device__ bool lost(int dim) const {
    bool nan = true;
    for (int i = 0; i < kMaxColumns; ++i)
      if (i * 32 < dim) nan &= isnan(sum[i]);
    return __all_sync(~0u, nan);
  }
};

}  // namespace nsa::kernels::sm90
