// Gated sum of the branches, forward and backward.
#include "nsa/device/token_kernels.h"
#include "nsa/device/tokens/vector.cuh"

namespace nsa::device {
namespace {

using namespace tokens;

constexpr int kThreads = 128;

template <typename T>
__global__ void __launch_bounds__(kThreads) combine_forward_kernel(const Combine p) {
  const int vectors = p.head_dim / kVector;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, row = i / vectors;
  if (row >= p.rows) return;
  const float* gate = p.gates + row / p.heads_per_gate * 3;
  const int64_t at = row * p.head_dim + i % vectors * kVector;
  float sum[kVector] = {}, one[kVector];
#pragma unroll
  for (int branch = 0; branch < 3; ++branch) {
    load(one, static_cast<const T*>(p.branch[branch]) + at);
    const float weight = gate[branch];
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += weight * one[j];
  }
  store(static_cast<T*>(p.out) + at, sum);
}

/// `lanes` (a power of two) of a warp take the rows of one gate triple, one row behind the other:
/// their sum has one order.
template <typename T>
__global__ void __launch_bounds__(kThreads) combine_backward_kernel(const Combine p, int lanes) {
  const int lane = threadIdx.x % lanes;
  const int64_t triple = int64_t(blockIdx.x) * (kThreads / lanes) + threadIdx.x / lanes;
  const bool exists = triple * p.heads_per_gate < p.rows;
  const float* gate = p.gates + (exists ? triple * 3 : 0);
  float d_gate[3] = {};
  for (int head = 0; exists && head < p.heads_per_gate; ++head) {
    const int64_t row = triple * p.heads_per_gate + head;
    for (int column = lane * kVector; column < p.head_dim; column += lanes * kVector) {
      const int64_t at = row * p.head_dim + column;
      float d_out[kVector], one[kVector], scaled[kVector];
      load(d_out, static_cast<const T*>(p.d_out) + at);
#pragma unroll
      for (int branch = 0; branch < 3; ++branch) {
        load(one, static_cast<const T*>(p.branch[branch]) + at);
        const float weight = gate[branch];
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          d_gate[branch] += d_out[j] * one[j];
          scaled[j] = weight * d_out[j];
        }
        store(static_cast<T*>(p.d_branch[branch]) + at, scaled);
      }
    }
  }
#pragma unroll
  for (int branch = 0; branch < 3; ++branch) {
    for (int step = lanes / 2; step > 0; step /= 2)
      d_gate[branch] += __shfl_xor_sync(~0u, d_gate[branch], step);
    if (exists && lane == 0) p.d_gates[triple * 3 + branch] = d_gate[branch];
  }
}

bool covered(const Combine& p) {
  return p.head_dim % kVector == 0 && p.heads_per_gate > 0 && p.rows % p.heads_per_gate == 0;
}

unsigned blocks(int64_t items, int per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

cudaError_t combine_forward(const Combine& p, cudaStream_t stream) {
  if (!covered(p)) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  return with_type(p.element, [&](auto type) {
    combine_forward_kernel<decltype(type)>
        <<<blocks(p.rows * (p.head_dim / kVector), kThreads), kThreads, 0, stream>>>(p);
  });
}

cudaError_t combine_backward(const Combine& p, cudaStream_t stream) {
  if (!covered(p)) return cudaErrorInvalidValue;
  if (p.rows == 0) return cudaSuccess;
  int lanes = 1;
  while (lanes < 32 && lanes * kVector < p.head_dim) lanes *= 2;
  return with_type(p.element, [&](auto type) {
    combine_backward_kernel<decltype(type)>
        <<<blocks(p.rows / p.heads_per_gate, kThreads / lanes), kThreads, 0, stream>>>(p, lanes);
  });
}

}  // namespace nsa::device
