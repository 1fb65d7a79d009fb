// Eight 16-bit elements as floats and back.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "nsa/kernels/interval/interval_attention.h"

namespace nsa::kernels::tokens {

__device__ inline float2 as_floats(__nv_bfloat162 pair) { return __bfloat1622float2(pair); }
__device__ inline float2 as_floats(__half2 pair) { return __half22float2(pair); }
__device__ inline void set(__nv_bfloat162& pair, float2 x) { pair = __float22bfloat162_rn(x); }
__device__ inline void set(__half2& pair, float2 x) { pair = __float22half2_rn(x); }

template <typename T>
struct PairOf;
template <>
struct PairOf<__nv_bfloat16> {
  using type = __nv_bfloat162;
};
template <>
struct PairOf<__half> {
  using type = __half2;
};

constexpr int kVector = 8;

/// Eight elements as they lie in memory. A kernel that memory bounds reads all it needs this way
/// before it writes: no load then waits behind a store that might change what it reads.
__device__ inline uint4 load_bits(const void* from) { return *static_cast<const uint4*>(from); }

template <typename T>
__device__ inline void unpack(float (&to)[kVector], const uint4& bits) {
  const auto* pairs = reinterpret_cast<const typename PairOf<T>::type*>(&bits);
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    const float2 x = as_floats(pairs[i]);
    to[2 * i] = x.x, to[2 * i + 1] = x.y;
  }
}

template <typename T>
__device__ inline void load(float (&to)[kVector], const T* from) {
  unpack<T>(to, load_bits(from));
}

template <typename T>
__device__ inline void store(T* to, const float (&from)[kVector]) {
  uint4 bits;
  auto* pairs = reinterpret_cast<typename PairOf<T>::type*>(&bits);
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) set(pairs[i], make_float2(from[2 * i], from[2 * i + 1]));
  *reinterpret_cast<uint4*>(to) = bits;
}

template <typename T>
__device__ inline void round_to(float (&x)[kVector]) {
#pragma unroll
  for (int j = 0; j < kVector; ++j) x[j] = static_cast<float>(static_cast<T>(x[j]));
}

/// The sum over a warp, the same bits in every lane.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

/// Calls body(T{}) with the type of the elements, inside a kernel: one that memory bounds gains
/// nothing from an instantiation of each type.
template <typename Body>
__device__ __forceinline__ void by_type(Element element, const Body& body) {
  if (element == Element::kHalf) {
    body(__half{});
  } else {
    body(__nv_bfloat16{});
  }
}

}  // namespace nsa::kernels::tokens
