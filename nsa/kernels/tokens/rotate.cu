// Rotary embedding: a block of threads a token; its angles once, for all heads.
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/tokens/rotation.cuh"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels {
namespace {

using namespace tokens;

constexpr int kThreads = 128;

template <typename T>
__device__ __forceinline__ void rotate_token(const Rotate& p, float2* cos_sin) {
  const int token = blockIdx.x, batch = blockIdx.y, pairs = p.head_dim / 2;
  const double position = static_cast<double>(
      p.positions[(p.per_sequence ? int64_t(batch) * p.num_tokens : 0) + token]);
  for (int i = threadIdx.x; i < pairs; i += kThreads) {
    const float2 t = cos_sin_of(position, rotary_frequency(p.base, i, p.head_dim));
    cos_sin[i] = make_float2(t.x, p.inverse ? -t.y : t.y);
  }
  __syncthreads();
  const T* x = static_cast<const T*>(p.x.data) + batch * p.x.batch + token * p.x.token;
  T* out =
      static_cast<T*>(p.out) + (int64_t(batch) * p.num_tokens + token) * p.num_heads * p.head_dim;
  const int vectors = p.head_dim / kVector;
  for (int i = threadIdx.x; i < p.num_heads * vectors; i += kThreads) {
    const int head = i / vectors, column = i % vectors * kVector;
    float values[kVector];
    load(values, x + head * p.x.head + column);
    rotate_pairs(values, cos_sin + column / 2);
    store(out + head * p.head_dim + column, values);
  }
}

__global__ void __launch_bounds__(kThreads) rotate_kernel(const __grid_constant__ Rotate p) {
  __shared__ __align__(16) float2 cos_sin[kMostPairs];
  by_type(p.element, [&](auto type) { rotate_token<decltype(type)>(p, cos_sin); });
}

}  // namespace

cudaError_t rotate(const Rotate& p, cudaStream_t stream) {
  if (p.batch == 0 || p.num_tokens == 0 || p.num_heads == 0) return cudaSuccess;
  if (p.head_dim % kVector != 0 || p.head_dim / 2 > kMostPairs) return cudaErrorInvalidValue;
  return portable::launch(rotate_kernel, dim3(p.num_tokens, p.batch), kThreads, 0, stream, p);
}

}  // namespace nsa::kernels
