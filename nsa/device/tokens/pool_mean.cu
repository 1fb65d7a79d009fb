// Mean over overlapping blocks of tokens, forward and backward: a thread eight columns of a head.
#include "nsa/device/token_kernels.h"
#include "nsa/device/tokens/vector.cuh"

namespace nsa::device {
namespace {

using namespace tokens;

constexpr int kThreads = 128;

/// What a thread works on: eight columns of one head of one row (block or token) of one sequence.
struct Place {
  int batch, row, head, column;
  bool exists;
};
__device__ Place place_of(const PoolMean& p, int rows) {
  const int vectors = p.head_dim / kVector;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, of_row = i / vectors;
  const int64_t row = of_row / p.num_heads;
  return {static_cast<int>(row / rows), static_cast<int>(row % rows),
          static_cast<int>(of_row % p.num_heads), static_cast<int>(i % vectors) * kVector,
          row < int64_t(p.batch) * rows};
}

/// Sum of the rows first .. last of x, in order, over l.
template <typename T>
__device__ void mean_of_rows(const PoolMean& p, const Place& at, int first, int last, int rows) {
  const T* x =
      static_cast<const T*>(p.x.data) + at.batch * p.x.batch + at.head * p.x.head + at.column;
  float sum[kVector] = {}, one[kVector];
  for (int row = first; row <= last; ++row) {
    load(one, x + row * p.x.token);
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] += one[j];
  }
#pragma unroll
  for (int j = 0; j < kVector; ++j) sum[j] /= static_cast<float>(p.block_size);
  T* out = static_cast<T*>(p.out);
  store(
      out + ((int64_t(at.batch) * rows + at.row) * p.num_heads + at.head) * p.head_dim + at.column,
      sum);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const PoolMean p) {
  const Place at = place_of(p, p.num_blocks);
  if (!at.exists) return;
  const int first = at.row * p.block_stride;
  mean_of_rows<T>(p, at, first, first + p.block_size - 1, p.num_blocks);
}

/// A token's gradient: the blocks it lies in, none behind the last whole block.
template <typename T>
__global__ void __launch_bounds__(kThreads) backward_kernel(const PoolMean p) {
  const Place at = place_of(p, p.num_tokens);
  if (!at.exists) return;
  const int before = at.row - p.block_size + 1;  // a block starts behind it
  const int first = before <= 0 ? 0 : (before + p.block_stride - 1) / p.block_stride;
  mean_of_rows<T>(p, at, first, min(at.row / p.block_stride, p.num_blocks - 1), p.num_tokens);
}

template <typename Kernel>
void launch(Kernel kernel, const PoolMean& p, int rows, cudaStream_t stream) {
  const int64_t threads = int64_t(p.batch) * rows * p.num_heads * (p.head_dim / kVector);
  kernel<<<static_cast<unsigned>((threads + kThreads - 1) / kThreads), kThreads, 0, stream>>>(p);
}

bool covered(const PoolMean& p) { return p.head_dim % kVector == 0 && p.block_size > 0; }

}  // namespace

cudaError_t pool_mean_forward(const PoolMean& p, cudaStream_t stream) {
  if (!covered(p)) return cudaErrorInvalidValue;
  if (p.batch == 0 || p.num_blocks == 0 || p.num_heads == 0) return cudaSuccess;
  return with_type(p.element, [&](auto type) {
    launch(forward_kernel<decltype(type)>, p, p.num_blocks, stream);
  });
}

cudaError_t pool_mean_backward(const PoolMean& p, cudaStream_t stream) {
  if (!covered(p)) return cudaErrorInvalidValue;
  if (p.batch == 0 || p.num_tokens == 0 || p.num_heads == 0) return cudaSuccess;
  return with_type(p.element, [&](auto type) {
    launch(backward_kernel<decltype(type)>, p, p.num_tokens, stream);
  });
}

}  // namespace nsa::device
