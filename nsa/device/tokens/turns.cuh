// Turns of the rotary embedding, angles in fp64.
#pragma once

namespace nsa::device::tokens {

constexpr int kMostPairs = 512;

/// base^(-2i/D), in half turns a token: sincospi reduces without the slow path for large angles,
/// which needs a stack.
__device__ inline double turn_frequency(double base, int pair, int head_dim) {
  constexpr double kPerPi = 0.31830988618379067154;
  return pow(base, -2.0 * pair / head_dim) * kPerPi;
}

/// (cos, sin) of a token's angle, each rounded once.
__device__ inline float2 turn_of(double position, double frequency) {
  double sine, cosine;
  sincospi(position * frequency, &sine, &cosine);
  return make_float2(static_cast<float>(cosine), static_cast<float>(sine));
}

/// Eight columns turned; `turns` are those of their four pairs. Backwards with the sine negated.
__device__ inline void turn(float (&x)[8], const float2* turns) {
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const float2 t = turns[j / 2];
    const float first = x[j] * t.x - x[j + 1] * t.y, second = x[j] * t.y + x[j + 1] * t.x;
    x[j] = first, x[j + 1] = second;
  }
}

}  // namespace nsa::device::tokens
