// Gradients of the token tensors from those of the branches: a block of threads a token.
#include "nsa/device/token_kernels.h"
#include "nsa/device/tokens/turns.cuh"
#include "nsa/device/tokens/vector.cuh"

namespace nsa::device {
namespace {

using namespace tokens;

constexpr int kThreads = 128;

template <typename T>
__device__ void add(float (&sum)[kVector], const void* x, int64_t at) {
  float one[kVector];
  load(one, static_cast<const T*>(x) + at);
#pragma unroll
  for (int j = 0; j < kVector; ++j) sum[j] += one[j];
}

/// The mean's gradient: the blocks a token lies in, none behind the last whole block.
template <typename T>
__device__ void add_blocks(float (&sum)[kVector], const TokenGradients& p,
                           const TokenGradients::Of& of, int batch, int token, int column) {
  const int before = token - p.block_size + 1;  // a block starts behind it
  const int first = before <= 0 ? 0 : (before + p.block_stride - 1) / p.block_stride;
  const int last = min(token / p.block_stride, p.num_blocks - 1),
            width = of.num_heads * of.head_dim;
  float blocks[kVector] = {};
  for (int block = first; block <= last; ++block)
    add<T>(blocks, of.blocks, (int64_t(batch) * p.num_blocks + block) * width + column);
  const float size = static_cast<float>(p.block_size);
#pragma unroll
  for (int j = 0; j < kVector; ++j) sum[j] += blocks[j] / size;
}

template <typename T>
__device__ __forceinline__ void join_gradients(const TokenGradients& p) {
  const int token = blockIdx.x, batch = blockIdx.y;
  const int64_t row = int64_t(batch) * p.num_tokens + token;
  const float2* turns = p.turns + int64_t(token) * (p.qk_head_dim / 2);
  int first = 0;  // of this tensor's vectors in the row of all tensors
  for (int which = 0; which < p.count; ++which) {
    const TokenGradients::Of& of = p.of[which];
    const int width = of.num_heads * of.head_dim, vectors = width / kVector;
    // Threads that the tensor before left idle begin here.
    for (int i = (threadIdx.x + kThreads - first % kThreads) % kThreads; i < vectors;
         i += kThreads) {
      const int column = i * kVector;
      float sum[kVector] = {};
#pragma unroll
      for (int term = 0; term < 4; ++term)
        if (of.term[term] != nullptr) add<T>(sum, of.term[term], row * width + column);
      if (of.blocks != nullptr) add_blocks<T>(sum, p, of, batch, token, column);
      if (of.rotated) turn(sum, turns + column % of.head_dim / 2, /*inverse=*/true);
      store(static_cast<T*>(of.out) + row * (of.out_stride > 0 ? of.out_stride : width) + column,
            sum);
    }
    first += vectors;
  }
}

__global__ void __launch_bounds__(kThreads)
    token_gradients_kernel(const __grid_constant__ TokenGradients p) {
  by_type(p.element, [&](auto type) { join_gradients<decltype(type)>(p); });
}

}  // namespace

cudaError_t token_gradients(const TokenGradients& p, cudaStream_t stream) {
  if (p.batch == 0 || p.num_tokens == 0 || p.count == 0) return cudaSuccess;
  bool rotates = false;
  for (int i = 0; i < p.count; ++i) {
    if (p.of[i].head_dim % kVector != 0 || p.of[i].out_stride % kVector != 0)
      return cudaErrorInvalidValue;
    if (p.of[i].rotated && p.of[i].head_dim != p.qk_head_dim) return cudaErrorInvalidValue;
    rotates = rotates || p.of[i].rotated;
  }
  if (p.count > TokenGradients::kMost || (rotates && p.turns == nullptr) || p.block_size < 1)
    return cudaErrorInvalidValue;
  token_gradients_kernel<<<dim3(p.num_tokens, p.batch), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace nsa::device
