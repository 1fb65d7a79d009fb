// What the tests of interval attention share: buffers, random data, loops in fp64. Without
// LibTorch.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "nsa/kernels/tests/interval/interval_host_judge.h"

namespace nsa::kernels::testing {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::printf("FAILED %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

struct Buffer {
  explicit Buffer(size_t bytes) : bytes(bytes) {
    check(cudaMalloc(&data, std::max<size_t>(bytes, 16)), "cudaMalloc");
  }
  ~Buffer() { cudaFree(data); }
  Buffer(const Buffer&) = delete;
  void fill(int byte) { check(cudaMemset(data, byte, bytes), "cudaMemset"); }
  void* data = nullptr;
  size_t bytes;
};

inline __device__ double number(const void* data, int64_t i, bool half) {
  return half ? double(__half2float(static_cast<const __half*>(data)[i]))
              : double(__bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]));
}

inline __global__ void draw_kernel(void* data, int64_t count, bool half, uint64_t seed,
                                   float scale) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count;
       i += int64_t(gridDim.x) * blockDim.x) {
    float sum = 0.f;  // of uniform values: close to normal
    uint64_t x = (seed << 32) ^ (uint64_t(i) * 0x9E3779B97F4A7C15ull);
    for (int j = 0; j < 4; ++j) {
      x ^= x >> 33, x *= 0xff51afd7ed558ccdull, x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53ull,
          x ^= x >> 33;
      sum += float(x >> 40) / float(1 << 24) - 0.5f;
    }
    const float value = sum * 1.7320508f * scale;
    if (half)
      static_cast<__half*>(data)[i] = __float2half(value);
    else
      static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16(value);
  }
}

inline __device__ double sum_of_block(double x) {
  __shared__ double parts[128];
  __syncthreads();
  parts[threadIdx.x] = x;
  __syncthreads();
  for (int n = 64; n > 0; n /= 2) {
    if (threadIdx.x < n) parts[threadIdx.x] += parts[threadIdx.x + n];
    __syncthreads();
  }
  return parts[0];
}
inline __device__ double dot(const void* a, int64_t i, const void* b, int64_t j, int n, bool half) {
  double sum = 0;
  for (int c = 0; c < n; ++c) sum += number(a, i + c, half) * number(b, j + c, half);
  return sum;
}
inline std::vector<uint16_t> read(const Buffer& b) {
  std::vector<uint16_t> host(b.bytes / 2);
  check(cudaMemcpy(host.data(), b.data, b.bytes, cudaMemcpyDeviceToHost), "read");
  return host;
}

/// Strides of a tensor [B, tokens, heads, dim] without gaps.
inline Strided dense(const Buffer& b, int tokens, int heads, int dim) {
  return {b.data, int64_t(tokens) * heads * dim, int64_t(heads) * dim, dim};
}

/// Median time of a launch in ms, after three to warm up.
inline float median_time(int launches, const std::function<void()>& launch) {
  std::vector<float> times;
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  for (int i = -3; i < launches; ++i) {
    check(cudaEventRecord(start), "timing");
    launch();
    check(cudaEventRecord(stop), "timing");
    check(cudaEventSynchronize(stop), "timing");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "timing");
    if (i >= 0) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace nsa::kernels::testing
