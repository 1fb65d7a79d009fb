// Cosines and sines of the rotary embedding, angles in fp64.
#pragma once
#include <cuda_runtime.h>

namespace nsa::kernels::tokens {

constexpr int kMostPairs = 512;

/// base^(-2i/D), in half turns a token: sincospi reduces without the slow path for large angles,
/// which needs a stack.
__device__ inline double rotary_frequency(double base, int pair, int head_dim) {
  constexpr double kPerPi = 0.31830988618379067154;
  return pow(base, -2.0 * pair / head_dim) * kPerPi;
}

/// (cos, sin) of a token's angle, each rounded once.
__device__ inline float2 cos_sin_of(double position, double frequency) {
  double sine, cosine;
  sincospi(position * frequency, &sine, &cosine);
  return make_float2(static_cast<float>(cosine), static_cast<float>(sine));
}

/// The (cos, sin) of eight columns, from an address aligned to 16 bytes.
__device__ inline void load_cos_sin(float2 (&to)[4], const float2* from) {
  const float4* pairs = reinterpret_cast<const float4*>(from);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 two = pairs[i];
    to[2 * i] = make_float2(two.x, two.y), to[2 * i + 1] = make_float2(two.z, two.w);
  }
}

/// Eight columns rotated by the (cos, sin) of their four pairs. `inverse`: backwards.
__device__ inline void rotate_by(float (&x)[8], const float2 (&cos_sin)[4], bool inverse = false) {
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const float2 t = make_float2(cos_sin[j / 2].x, inverse ? -cos_sin[j / 2].y : cos_sin[j / 2].y);
    const float first = x[j] * t.x - x[j + 1] * t.y, second = x[j] * t.y + x[j + 1] * t.x;
    x[j] = first, x[j + 1] = second;
  }
}

/// The same; `cos_sin` has an address aligned to 16 bytes.
__device__ inline void rotate_pairs(float (&x)[8], const float2* cos_sin) {
  float2 four[4];
  load_cos_sin(four, cos_sin);
  rotate_by(x, four);
}

}  // namespace nsa::kernels::tokens
