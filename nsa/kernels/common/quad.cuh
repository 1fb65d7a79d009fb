// Values as the threads of a quad hold them in accumulators of products, and back.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "nsa/kernels/common/mma.cuh"

namespace nsa::kernels::portable {

__device__ inline float2 unpack(uint32_t bits, __nv_bfloat16) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
}
__device__ inline float2 unpack(uint32_t bits, __half) {
  return __half22float2(*reinterpret_cast<const __half2*>(&bits));
}

/// sum[i] += weight * value i of 8.
template <typename T>
__device__ void add_eight(float (&sum)[8], const uint4& values, float weight = 1.f) {
  const uint32_t pairs[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = unpack(pairs[i], T{});
    sum[2 * i] = fmaf(weight, pair.x, sum[2 * i]);
    sum[2 * i + 1] = fmaf(weight, pair.y, sum[2 * i + 1]);
  }
}

/// Word i of thread q of a quad becomes word q of thread i. All threads of a warp call.
__device__ inline void transpose_words(const uint32_t (&words)[4], uint32_t (&whole)[4]) {
  const int q = threadIdx.x % 4;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int to = q ^ step;  // whose word this thread gives away
    const uint32_t give = to == 0 ? words[0] : to == 1 ? words[1] : to == 2 ? words[2] : words[3];
    const uint32_t got = __shfl_xor_sync(~0u, give, step);
#pragma unroll
    for (int from = 0; from < 4; ++from)
      if (from == to) whole[from] = got;
  }
}

/// Accumulators of products hold, in thread q of a quad, columns 8 j + 2 q and the next. values
/// 2 j and 2 j + 1 are four such pairs; the result are columns 8 q to 8 q + 7, packed. All threads
/// of a warp call.
template <typename T>
__device__ uint4 whole_columns(const float (&values)[8]) {
  uint32_t words[4], whole[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) words[j] = pack<T>(values[2 * j], values[2 * j + 1]);
  transpose_words(words, whole);
  return make_uint4(whole[0], whole[1], whole[2], whole[3]);
}

/// The way back, packed still: columns 8 q to 8 q + 7 -> pairs of columns 8 j + 2 q and the next.
__device__ inline uint4 quad_pairs(const uint4& columns) {
  const uint32_t words[4] = {columns.x, columns.y, columns.z, columns.w};
  uint32_t pairs[4];
  transpose_words(words, pairs);
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

}  // namespace nsa::kernels::portable
