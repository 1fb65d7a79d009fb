#pragma once
// Vectors of fp32 of the instruction set that the including file is compiled for. Everything is in
// an unnamed namespace: functions of different instruction sets must never be merged by the linker.
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace nsa::cpu {
namespace {

#if defined(__AVX512F__)
struct Vector {
  static constexpr int kLanes = 16;
  __m512 x;
};
struct Mask {
  __mmask16 x;
};
inline Vector load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Vector a) { _mm512_storeu_ps(p, a.x); }
inline Vector broadcast(float a) { return {_mm512_set1_ps(a)}; }
inline Vector add(Vector a, Vector b) { return {_mm512_add_ps(a.x, b.x)}; }
inline Vector subtract(Vector a, Vector b) { return {_mm512_sub_ps(a.x, b.x)}; }
inline Vector multiply(Vector a, Vector b) { return {_mm512_mul_ps(a.x, b.x)}; }
inline Vector multiply_add(Vector a, Vector b, Vector c) {
  return {_mm512_fmadd_ps(a.x, b.x, c.x)};
}
/// The larger one; b where either is NaN.
inline Vector larger(Vector a, Vector b) { return {_mm512_max_ps(a.x, b.x)}; }
inline Vector smaller(Vector a, Vector b) { return {_mm512_min_ps(a.x, b.x)}; }
inline Vector round_to_even(Vector a) {
  return {_mm512_roundscale_ps(a.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// a * 2^n for whole n in -126..127.
inline Vector scale_by_power(Vector a, Vector n) { return {_mm512_scalef_ps(a.x, n.x)}; }
/// Lane i of the mask is bit i.
inline Mask mask_of(uint64_t bits) { return {static_cast<__mmask16>(bits)}; }
inline Mask not_below(Vector a, Vector b) {  // true for NaN
  return {_mm512_cmp_ps_mask(a.x, b.x, _CMP_NLT_UQ)};
}
inline Vector select(Mask mask, Vector a, Vector b) {
  return {_mm512_mask_blend_ps(mask.x, b.x, a.x)};
}
inline float sum_of_lanes(Vector a) { return _mm512_reduce_add_ps(a.x); }
inline float largest_lane(Vector a) { return _mm512_reduce_max_ps(a.x); }

#elif defined(__AVX2__)
struct Vector {
  static constexpr int kLanes = 8;
  __m256 x;
};
struct Mask {
  __m256 x;
};
inline Vector load(const float* p) { return {_mm256_loadu_ps(p)}; }
inline void store(float* p, Vector a) { _mm256_storeu_ps(p, a.x); }
inline Vector broadcast(float a) { return {_mm256_set1_ps(a)}; }
inline Vector add(Vector a, Vector b) { return {_mm256_add_ps(a.x, b.x)}; }
inline Vector subtract(Vector a, Vector b) { return {_mm256_sub_ps(a.x, b.x)}; }
inline Vector multiply(Vector a, Vector b) { return {_mm256_mul_ps(a.x, b.x)}; }
inline Vector multiply_add(Vector a, Vector b, Vector c) {
  return {_mm256_fmadd_ps(a.x, b.x, c.x)};
}
inline Vector larger(Vector a, Vector b) { return {_mm256_max_ps(a.x, b.x)}; }
inline Vector smaller(Vector a, Vector b) { return {_mm256_min_ps(a.x, b.x)}; }
inline Vector round_to_even(Vector a) {
  return {_mm256_round_ps(a.x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline Vector scale_by_power(Vector a, Vector n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.x), _mm256_set1_epi32(127));
  return {_mm256_mul_ps(a.x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)))};
}
inline Mask mask_of(uint64_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i all = _mm256_set1_epi32(static_cast<int>(bits & 0xff));
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane))};
}
inline Mask not_below(Vector a, Vector b) { return {_mm256_cmp_ps(a.x, b.x, _CMP_NLT_UQ)}; }
inline Vector select(Mask mask, Vector a, Vector b) { return {_mm256_blendv_ps(b.x, a.x, mask.x)}; }
inline float sum_of_lanes(Vector a) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(a.x), _mm256_extractf128_ps(a.x, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
inline float largest_lane(Vector a) {
  const __m128 half = _mm_max_ps(_mm256_castps256_ps128(a.x), _mm256_extractf128_ps(a.x, 1));
  const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

#else
// Any processor: the compiler's vectors of four.
struct Vector {
  static constexpr int kLanes = 4;
  typedef float Lanes __attribute__((vector_size(16)));
  Lanes x;
};
struct Mask {
  typedef int32_t Lanes __attribute__((vector_size(16)));
  Lanes x;
};
inline Vector load(const float* p) { return {Vector::Lanes{p[0], p[1], p[2], p[3]}}; }
inline void store(float* p, Vector a) {
  for (int i = 0; i < 4; ++i) p[i] = a.x[i];
}
inline Vector broadcast(float a) { return {Vector::Lanes{a, a, a, a}}; }
inline Vector add(Vector a, Vector b) { return {a.x + b.x}; }
inline Vector subtract(Vector a, Vector b) { return {a.x - b.x}; }
inline Vector multiply(Vector a, Vector b) { return {a.x * b.x}; }
inline Vector multiply_add(Vector a, Vector b, Vector c) { return {a.x * b.x + c.x}; }
inline Vector larger(Vector a, Vector b) { return {a.x > b.x ? a.x : b.x}; }
inline Vector smaller(Vector a, Vector b) { return {a.x < b.x ? a.x : b.x}; }
inline Vector round_to_even(Vector a) {
  // Adding 1.5 * 2^23 leaves no places behind the point; right for |a| < 2^22.
  const Vector shift = broadcast(12582912.0F);
  return subtract(add(a, shift), shift);
}
inline Vector scale_by_power(Vector a, Vector n) {
  Mask exponent{__builtin_convertvector(n.x, Mask::Lanes)};
  exponent.x = (exponent.x + 127) << 23;
  return {a.x * reinterpret_cast<Vector::Lanes>(exponent.x)};
}
inline Mask mask_of(uint64_t bits) {
  const Mask::Lanes lane = {1, 2, 4, 8};
  const auto word = static_cast<int32_t>(bits & 0xf);
  return {(Mask::Lanes{word, word, word, word} & lane) == lane};
}
inline Mask not_below(Vector a, Vector b) { return {~(a.x < b.x)}; }
inline Vector select(Mask mask, Vector a, Vector b) { return {mask.x ? a.x : b.x}; }
inline float sum_of_lanes(Vector a) { return (a.x[0] + a.x[2]) + (a.x[1] + a.x[3]); }
inline float largest_lane(Vector a) {
  const auto of = [](float x, float y) { return x > y ? x : y; };
  return of(of(a.x[0], a.x[2]), of(a.x[1], a.x[3]));
}
#endif

/// Sums of products. Without a fused multiply-add each step would round twice, so they are in fp64.
#if defined(__AVX512F__) || defined(__AVX2__)
using Sums = Vector;
inline Sums sums_of(Vector a) { return a; }
inline Vector rounded(Sums a) { return a; }
#else
struct Sums {
  typedef double Lanes __attribute__((vector_size(32)));
  Lanes x;
};
inline Sums sums_of(const Vector& a) { return {__builtin_convertvector(a.x, Sums::Lanes)}; }
inline Vector rounded(const Sums& a) { return {__builtin_convertvector(a.x, Vector::Lanes)}; }
inline Sums multiply_add(const Vector& a, const Vector& b, const Sums& c) {
  return {sums_of(a).x * sums_of(b).x + c.x};
}
#endif

/// exp(a) for a <= 88, within 2 units in the last place; 0 below the smallest normal number, NaN
/// for NaN. Equal arguments have equal results in every lane.
inline Vector exp_of(Vector a) {
  const Vector least = broadcast(-87.3365F);
  const Mask kept = not_below(a, least);
  // The second operand is the result where one is NaN.
  const Vector x = smaller(broadcast(88.0F), larger(least, a));
  const Vector n = round_to_even(multiply(x, broadcast(1.44269504F)));
  Vector r = multiply_add(n, broadcast(-0.693359375F), x);
  r = multiply_add(n, broadcast(2.12194440e-4F), r);
  Vector p = broadcast(1.9875691500e-4F);
  p = multiply_add(p, r, broadcast(1.3981999507e-3F));
  p = multiply_add(p, r, broadcast(8.3334519073e-3F));
  p = multiply_add(p, r, broadcast(4.1665795894e-2F));
  p = multiply_add(p, r, broadcast(1.6666665459e-1F));
  p = multiply_add(p, r, broadcast(5.0000001201e-1F));
  p = add(multiply_add(multiply(r, r), p, r), broadcast(1.0F));
  return select(kept, scale_by_power(p, n), broadcast(0.0F));
}

}  // namespace
}  // namespace nsa::cpu
