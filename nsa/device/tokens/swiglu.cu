// silu(gate) * up, forward and backward.
#include "nsa/device/token_kernels.h"
#include "nsa/device/tokens/vector.cuh"

namespace nsa::device {
namespace {

using namespace tokens;

constexpr int kThreads = 256;

/// silu(gate) * up in the place of gate; the same bits in both passes.
__device__ __forceinline__ void multiply(float (&gate)[kVector], const float (&up)[kVector]) {
#pragma unroll
  for (int j = 0; j < kVector; ++j) gate[j] = up[j] * gate[j] / (1.f + __expf(-gate[j]));
}

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
  multiply(gate, up);
  store(static_cast<T*>(p.out) + i * kVector, gate);
}

template <typename T>
__device__ __forceinline__ void differentiate(const Swiglu& p) {
  const int vectors = p.hidden / kVector;
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x, row = i / vectors;
  if (row >= p.rows) return;
  const int64_t at = row * 2 * p.hidden + i % vectors * kVector;
  float gate[kVector], up[kVector], d_out[kVector], d_gate[kVector], d_up[kVector];
  load(gate, static_cast<const T*>(p.gate_up) + at);
  load(up, static_cast<const T*>(p.gate_up) + at + p.hidden);
  load(d_out, static_cast<const T*>(p.d_out) + i * kVector);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const float sigmoid = 1.f / (1.f + __expf(-gate[j])), silu = gate[j] * sigmoid;
    d_gate[j] = d_out[j] * up[j] * (sigmoid + silu * (1.f - sigmoid));
    d_up[j] = d_out[j] * silu;
  }
  store(static_cast<T*>(p.d_gate_up) + at, d_gate);
  store(static_cast<T*>(p.d_gate_up) + at + p.hidden, d_up);
  if (p.out == nullptr) return;
  multiply(gate, up);
  store(static_cast<T*>(p.out) + i * kVector, gate);
}

__global__ void __launch_bounds__(kThreads) swiglu_kernel(const Swiglu p) {
  by_type(p.element, [&](auto type) {
    if (p.d_out == nullptr) {
      multiply<decltype(type)>(p);
    } else {
      differentiate<decltype(type)>(p);
    }
  });
}

cudaError_t launch(const Swiglu& p, cudaStream_t stream) {
  if (p.hidden <= 0 || p.hidden % kVector != 0) return cudaErrorInvalidValue;
  const int64_t blocks = (p.rows * (p.hidden / kVector) + kThreads - 1) / kThreads;
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  if (blocks == 0) return cudaSuccess;
  swiglu_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(p);
  return cudaGetLastError();
}

}  // namespace

cudaError_t swiglu_forward(const Swiglu& p, cudaStream_t stream) {
  return p.d_out == nullptr ? launch(p, stream) : cudaErrorInvalidValue;
}

cudaError_t swiglu_backward(const Swiglu& p, cudaStream_t stream) {
  return p.d_out != nullptr || p.rows == 0 ? launch(p, stream) : cudaErrorInvalidValue;
}

}  // namespace nsa::device
