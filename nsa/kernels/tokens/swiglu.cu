// silu(gate) * up, forward and backward.
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/vector.cuh"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa::kernels {
namespace {

using namespace tokens;

constexpr int kMostThreads = 256, kWarp = 32;
constexpr int kRows = 2;  // of a thread, loaded before either is stored

/// A product with the fast reciprocal: its error of two fp32 ulps is far below the element type's.
__device__ __forceinline__ float sigmoid_of(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }

/// Eight columns of kRows rows a thread.
struct Place {
  int64_t row;
  int column, rows;
  __device__ explicit Place(const Swiglu& p)
      : row(int64_t(blockIdx.x) * kRows),
        column(static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kVector),
        rows(column >= p.hidden     ? 0
             : p.rows - row < kRows ? static_cast<int>(p.rows - row)
                                    : kRows) {}
  __device__ int64_t in(const Swiglu& p, int r) const { return (row + r) * p.hidden + column; }
  /// Of gate; up stands `hidden` behind it.
  __device__ int64_t in_pair(const Swiglu& p, int r) const {
    return (row + r) * 2 * p.hidden + column;
  }
};

template <typename T>
__device__ __forceinline__ void multiply(const Swiglu& p) {
  const Place place(p);
  uint4 gates[kRows] = {}, ups[kRows] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= place.rows) break;
    const T* from = static_cast<const T*>(p.gate_up) + place.in_pair(p, r);
    gates[r] = load_bits(from);
    ups[r] = load_bits(from + p.hidden);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= place.rows) break;
    float gate[kVector], up[kVector];
    unpack<T>(gate, gates[r]);
    unpack<T>(up, ups[r]);
#pragma unroll
    for (int j = 0; j < kVector; ++j) up[j] *= gate[j] * sigmoid_of(gate[j]);
    store(static_cast<T*>(p.out) + place.in(p, r), up);
  }
}

/// Gradients of eight columns; the product once more, in the bits of the forward pass.
template <typename T>
__device__ __forceinline__ void differentiate_row(const Swiglu& p, const Place& place, int r,
                                                  const uint4 (&bits)[3]) {
  float gate[kVector], up[kVector], d[kVector], d_up[kVector];
  unpack<T>(gate, bits[0]);
  unpack<T>(up, bits[1]);
  unpack<T>(d, bits[2]);
#pragma unroll
  for (int j = 0; j < kVector; ++j) {
    const float sigmoid = sigmoid_of(gate[j]), silu = gate[j] * sigmoid;
    d_up[j] = d[j] * silu;
    d[j] *= up[j] * (sigmoid + silu * (1.f - sigmoid));
    up[j] *= silu;
  }
  T* to = static_cast<T*>(p.d_gate_up) + place.in_pair(p, r);
  store(to, d);
  store(to + p.hidden, d_up);
  if (p.out != nullptr) store(static_cast<T*>(p.out) + place.in(p, r), up);
}

template <typename T>
__device__ __forceinline__ void differentiate(const Swiglu& p) {
  const Place place(p);
  uint4 bits[kRows][3] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= place.rows) break;
    const T* from = static_cast<const T*>(p.gate_up) + place.in_pair(p, r);
    bits[r][0] = load_bits(from);
    bits[r][1] = load_bits(from + p.hidden);
    bits[r][2] = load_bits(static_cast<const T*>(p.d_out) + place.in(p, r));
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= place.rows) break;
    differentiate_row<T>(p, place, r, bits[r]);
  }
}

__global__ void __launch_bounds__(kMostThreads) swiglu_kernel(const Swiglu p) {
  by_type(p.element, [&](auto type) {
    if (p.d_out == nullptr) {
      multiply<decltype(type)>(p);
    } else {
      differentiate<decltype(type)>(p);
    }
  });
}

cudaError_t launch(const Swiglu& p, cudaStream_t stream) {
  constexpr int kMostChunks = 65535;
  if (p.hidden <= 0 || p.hidden % kVector != 0) return cudaErrorInvalidValue;
  const int vectors = p.hidden / kVector, warps = (vectors + kWarp - 1) / kWarp;
  const int threads = warps * kWarp < kMostThreads ? warps * kWarp : kMostThreads;
  const int chunks = (vectors + threads - 1) / threads;
  const int64_t blocks = (p.rows + kRows - 1) / kRows;
  if (blocks > INT32_MAX || chunks > kMostChunks) return cudaErrorInvalidValue;
  if (blocks == 0) return cudaSuccess;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(chunks));
  return portable::launch(swiglu_kernel, grid, static_cast<unsigned>(threads), 0, stream, p);
}

}  // namespace

cudaError_t swiglu_forward(const Swiglu& p, cudaStream_t stream) {
  return p.d_out == nullptr ? launch(p, stream) : cudaErrorInvalidValue;
}

cudaError_t swiglu_backward(const Swiglu& p, cudaStream_t stream) {
  return p.d_out != nullptr || p.rows == 0 ? launch(p, stream) : cudaErrorInvalidValue;
}

}  // namespace nsa::kernels
