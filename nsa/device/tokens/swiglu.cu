// silu(gate) * up, forward and backward.
#include "nsa/device/token_kernels.h"
#include "nsa/device/tokens/vector.cuh"

namespace nsa::device {
namespace {

using namespace tokens;

constexpr int kThreads = 256;

/// Eight columns a thread; gate and up of a row stand one behind the other.
template <typename T>
__device__ __forceinline__ void multiply(const Swiglu& p) {
  const int vectors = p.hidden / kVector;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, row = i / vectors;
  if (row >= p.rows) return;
  const T* from = static_cast<const T*>(p.gate_up) + row * 2 * p.hidden + i % vectors * kVector;
  float gate[kVector], up[kVector];
  load(gate, from);
  load(up, from + p.hidden);
#pragma unroll
  for (int j = 0; j < kVector; ++j) gate[j] = up[j] * gate[j] / (1.f + __expf(-gate[j]));
  store(static_cast<T*>(p.out) + i * kVector, gate);
}

template <typename T>
__device__ __forceinline__ void differentiate(const Swiglu& p) {
  const int vectors = p.hidden / kVector;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, row = i / vectors;
  if (row >= p.rows) return;
  const int64_t at = row * 2 * p.hidden + i % vectors * kVector;
  float gate[kVector], up[kVector], d_out[kVector];
  load(gate, static_cast<const T*>(p.gate_up) + at);
  load(up, static_cast<const T*>(p.gate_up) + at + p.hidden);
  load(d_out, static_cast<const T*>(p.d_out) + i * kVector);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const float sigmoid = 1.f / (1.f + __expf(-gate[j])), silu = gate[j] * sigmoid;
    gate[j] = d_out[j] * up[j] * (sigmoid + silu * (1.f - sigmoid));
    up[j] = d_out[j] * silu;
  }
  store(static_cast<T*>(p.d_gate_up) + at, gate);
  store(static_cast<T*>(p.d_gate_up) + at + p.hidden, up);
}

__global__ void __launch_bounds__(kThreads) swiglu_forward_kernel(const Swiglu p) {
  by_type(p.element, [&](auto type) { multiply<decltype(type)>(p); });
}

__global__ void __launch_bounds__(kThreads) swiglu_backward_kernel(const Swiglu p) {
  by_type(p.element, [&](auto type) { differentiate<decltype(type)>(p); });
}

cudaError_t launch(void (*kernel)(Swiglu), const Swiglu& p, cudaStream_t stream) {
  if (p.hidden <= 0 || p.hidden % kVector != 0) return cudaErrorInvalidValue;
  const int64_t blocks = (p.rows * (p.hidden / kVector) + kThreads - 1) / kThreads;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  if (blocks == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t swiglu_forward(const Swiglu& p, cudaStream_t stream) {
  return launch(swiglu_forward_kernel, p, stream);
}

cudaError_t swiglu_backward(const Swiglu& p, cudaStream_t stream) {
  return launch(swiglu_backward_kernel, p, stream);
}

}  // namespace nsa::device
