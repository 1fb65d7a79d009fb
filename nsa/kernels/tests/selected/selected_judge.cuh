// The fp64 loops that judge the kernels of the selected branch, and distances from them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "nsa/kernels/tests/test_buffer.cuh"

namespace {

template <typename T>
struct Plain {
  const T *q, *k, *v, *d_out, *out;
  const int2* ranges;
  const float *lse, *d_lse;
  int s, n, heads, kv_heads, dk, dv, num_ranges, first_position;
  double scale;

  __device__ bool attends(int64_t row, int position, int key) const {
    if (key > position) return false;
    for (int i = 0; i < num_ranges; ++i) {
      const int2 range = ranges[row * num_ranges + i];
      if (key >= range.x && key < range.y) return true;
    }
    return false;
  }
  /// Probability and its gradient of one (query row, key), by a warp.
  __device__ double2 pair(int64_t query, int64_t key_row, double delta) const {
    const int lane = threadIdx.x % 32;
    double dot = 0, d_dot = 0;
    for (int i = lane; i < dk; i += 32)
      dot += double(float(q[query * dk + i])) * double(float(k[key_row * dk + i]));
    for (int i = lane; i < dv; i += 32)
      d_dot += double(float(d_out[query * dv + i])) * double(float(v[key_row * dv + i]));
    for (int step = 16; step > 0; step /= 2) {
      dot += __shfl_xor_sync(~0u, dot, step);
      d_dot += __shfl_xor_sync(~0u, d_dot, step);
    }
    const double p = exp(dot * scale - double(lse[query]));
    return make_double2(p, p * (d_dot - delta));
  }
  __device__ double delta_of(int64_t query) const {
    double delta = 0;
    for (int i = threadIdx.x % 32; i < dv; i += 32)
      delta += double(float(d_out[query * dv + i])) * double(float(out[query * dv + i]));
    for (int step = 16; step > 0; step /= 2) delta += __shfl_xor_sync(~0u, delta, step);
    return d_lse == nullptr ? delta : delta - double(d_lse[query]);
  }
};

/// out and lse of every `stride`-th row; a warp a row.
template <typename T>
__global__ void plain_forward(Plain<T> x, T* out, float* lse, int64_t rows) {
  const int64_t query = int64_t(blockIdx.x) * 4 + threadIdx.x / 32;
  if (query >= rows) return;
  const int lane = threadIdx.x % 32, head = query % x.heads, kv = head / (x.heads / x.kv_heads);
  const int64_t token = query / x.heads, batch = token / x.s;
  const int position = x.first_position + token % x.s;
  double sum = 0, o[8] = {};
  for (int key = 0; key <= position; ++key) {
    if (!x.attends(token * x.kv_heads + kv, position, key)) continue;
    const int64_t key_row = (batch * x.n + key) * x.kv_heads + kv;
    double dot = 0;
    for (int i = lane; i < x.dk; i += 32)
      dot += double(float(x.q[query * x.dk + i])) * double(float(x.k[key_row * x.dk + i]));
    for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
    const double p = exp(dot * x.scale);
    sum += p;
    for (int i = 0; i < x.dv / 32; ++i)
      o[i] += p * double(float(x.v[key_row * x.dv + i * 32 + lane]));
  }
  for (int i = 0; i < x.dv / 32; ++i)
    out[query * x.dv + i * 32 + lane] = T(float(sum == 0 ? 0 : o[i] / sum));
  if (lane == 0) lse[query] = sum == 0 ? -INFINITY : float(log(sum));
}

/// d_q of rows 0, stride, 2 stride, ...; a warp a row.
template <typename T>
__global__ void plain_queries(Plain<T> x, double* d_q, int64_t rows, int stride) {
  const int64_t at = int64_t(blockIdx.x) * 4 + threadIdx.x / 32, query = at * stride;
  if (query >= rows) return;
  const int lane = threadIdx.x % 32, head = query % x.heads, kv = head / (x.heads / x.kv_heads);
  const int64_t token = query / x.heads, batch = token / x.s;
  const int position = x.first_position + token % x.s;
  const double delta = x.delta_of(query);
  double sum[6] = {};
  for (int key = 0; key <= position; ++key) {
    if (!x.attends(token * x.kv_heads + kv, position, key)) continue;
    const int64_t key_row = (batch * x.n + key) * x.kv_heads + kv;
    const double2 p = x.pair(query, key_row, delta);
    for (int i = 0; i < x.dk / 32; ++i)
      sum[i] += x.scale * p.y * double(float(x.k[key_row * x.dk + i * 32 + lane]));
  }
  for (int i = 0; i < x.dk / 32; ++i) d_q[at * x.dk + i * 32 + lane] = sum[i];
}

/// d_k and d_v of key rows 0, stride, ...; a warp a row of [B, N, Hkv].
template <typename T>
__global__ void plain_keys(Plain<T> x, double* d_k, double* d_v, int64_t rows, int stride) {
  const int64_t at = int64_t(blockIdx.x) * 4 + threadIdx.x / 32, key_row = at * stride;
  if (key_row >= rows) return;
  const int lane = threadIdx.x % 32, kv = key_row % x.kv_heads, group = x.heads / x.kv_heads;
  const int64_t batch = key_row / x.kv_heads / x.n;
  const int key = key_row / x.kv_heads % x.n;
  double dk_sum[6] = {}, dv_sum[4] = {};
  for (int t = max(0, key - x.first_position); t < x.s; ++t) {
    const int64_t token = batch * x.s + t;
    if (!x.attends(token * x.kv_heads + kv, x.first_position + t, key)) continue;
    for (int g = 0; g < group; ++g) {
      const int64_t query = token * x.heads + kv * group + g;
      const double2 p = x.pair(query, key_row, x.delta_of(query));
      for (int i = 0; i < x.dk / 32; ++i)
        dk_sum[i] += x.scale * p.y * double(float(x.q[query * x.dk + i * 32 + lane]));
      for (int i = 0; i < x.dv / 32; ++i)
        dv_sum[i] += p.x * double(float(x.d_out[query * x.dv + i * 32 + lane]));
    }
  }
  for (int i = 0; i < x.dk / 32; ++i) d_k[at * x.dk + i * 32 + lane] = dk_sum[i];
  for (int i = 0; i < x.dv / 32; ++i) d_v[at * x.dv + i * 32 + lane] = dv_sum[i];
}

__device__ inline double value(__half x) { return __half2float(x); }
__device__ inline double value(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline double value(float x) { return x; }
__device__ inline double value(double x) { return x; }

/// most[0]: largest error of rows 0, stride, ..., infinite where exactly one is NaN or infinite;
/// most[1]: largest finite value. The bits of doubles that are not negative ascend.
template <typename V, typename W>
__global__ void differences(const V* have, const W* want, size_t count, int dim, int stride,
                            unsigned long long* most) {
  double error = 0, largest = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    const double h = value(have[(i / dim * stride) * dim + i % dim]), w = value(want[i]);
    if (isfinite(w)) largest = fmax(largest, fabs(w));
    if (h == w || (isnan(w) && isnan(h))) continue;
    const double difference = fabs(h - w);
    error = isfinite(difference) ? fmax(error, difference) : INFINITY;
    if (isinf(error)) break;
  }
  atomicMax(most, static_cast<unsigned long long>(__double_as_longlong(error)));
  atomicMax(most + 1, static_cast<unsigned long long>(__double_as_longlong(largest)));
}

struct Difference {
  double error, largest;
  double relative() const { return std::isinf(error) || largest < 1e-12 ? error : error / largest; }
};

/// Of `have`'s rows 0, stride, ... from `want`, which holds these only.
template <typename V, typename W>
Difference difference(const Buffer<V>& have, const Buffer<W>& want, int dim = 1, int stride = 1) {
  Buffer<unsigned long long> most(2);
  most.fill(0);
  differences<<<1024, 256>>>(have.data, want.data, want.count, dim, stride, most.data);
  check(cudaDeviceSynchronize(), "difference");
  const std::vector<unsigned long long> bits = most.host();
  double values[2];
  std::memcpy(values, bits.data(), sizeof values);
  return {values[0], values[1]};
}

/// Values with other bits.
template <typename V>
__global__ void count_other_bits(const V* a, const V* b, size_t count, unsigned long long* others) {
  unsigned long long own = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x)
    for (size_t byte = 0; byte < sizeof(V); ++byte)
      own +=
          reinterpret_cast<const char*>(a + i)[byte] != reinterpret_cast<const char*>(b + i)[byte];
  if (own != 0) atomicAdd(others, own);
}

template <typename V>
bool same_bits(const Buffer<V>& a, const Buffer<V>& b) {
  if (a.count != b.count) return false;
  Buffer<unsigned long long> others(1);
  others.fill(0);
  count_other_bits<<<1024, 256>>>(a.data, b.data, a.count, others.data);
  check(cudaDeviceSynchronize(), "same_bits");
  return others.host()[0] == 0;
}

}  // namespace
