// CUDA's built-ins as the emulator has them, for kernels that are compiled as C++.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "nsa/kernels/tests/emulator/emulator.h"

#undef __shared__
#define __shared__ static  // one block runs at a time
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __noinline__
#define __noinline__

namespace nsa::kernels::emulator {

template <typename T>
struct Exchange {
  T value, result;
  int source;  // a lane
};

template <typename T>
T shuffle(const char* what, unsigned mask, T value, int source) {
  Exchange<T> own{value, value, source};
  meet(what, mask, &own, [](void* const(&lanes)[32], uint32_t named) {
    for (int i = 0; i < 32; ++i) {
      if (!(named >> i & 1)) continue;
      auto* to = static_cast<Exchange<T>*>(lanes[i]);
      if (!(named >> to->source & 1)) fail("a shuffle reads lane %d, not named", to->source);
      to->result = static_cast<Exchange<T>*>(lanes[to->source])->value;
    }
  });
  return own.result;
}

/// The values of all named lanes, one after the other, for every one of them.
template <typename T, typename Join>
T join_lanes(const char* what, unsigned mask, T value, const Join&) {
  meet(what, mask, &value, [](void* const(&lanes)[32], uint32_t named) {
    T all{};
    bool first = true;
    for (int i = 0; i < 32; ++i) {
      if (!(named >> i & 1)) continue;
      const T one = *static_cast<T*>(lanes[i]);
      all = first ? one : Join()(all, one);
      first = false;
    }
    for (int i = 0; i < 32; ++i)
      if (named >> i & 1) *static_cast<T*>(lanes[i]) = all;
  });
  return value;
}

}  // namespace nsa::kernels::emulator

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int own = nsa::kernels::emulator::lane();
  return nsa::kernels::emulator::shuffle("__shfl_sync", mask, value,
                                         own / width * width + (source & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int own = nsa::kernels::emulator::lane(), source = own ^ lanes;
  return nsa::kernels::emulator::shuffle("__shfl_xor_sync", mask, value,
                                         source / width <= own / width ? source : own);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int own = nsa::kernels::emulator::lane();
  return nsa::kernels::emulator::shuffle("__shfl_up_sync", mask, value,
                                         own % width < int(by) ? own : own - int(by));
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int own = nsa::kernels::emulator::lane();
  return nsa::kernels::emulator::shuffle("__shfl_down_sync", mask, value,
                                         own % width + int(by) >= width ? own : own + int(by));
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned own = predicate ? 1u << nsa::kernels::emulator::lane() : 0u;
  return nsa::kernels::emulator::join_lanes("__ballot_sync", mask, own,
                                            [](unsigned x, unsigned y) { return x | y; });
}
inline int __any_sync(unsigned mask, int predicate) {
  return nsa::kernels::emulator::join_lanes("__any_sync", mask, int(predicate != 0),
                                            [](int x, int y) { return x | y; });
}
inline int __all_sync(unsigned mask, int predicate) {
  return nsa::kernels::emulator::join_lanes("__all_sync", mask, int(predicate != 0),
                                            [](int x, int y) { return x & y; });
}
template <typename T>
T __reduce_or_sync(unsigned mask, T value) {
  return nsa::kernels::emulator::join_lanes("__reduce_or_sync", mask, value,
                                            [](T x, T y) { return x | y; });
}
template <typename T>
T __reduce_and_sync(unsigned mask, T value) {
  return nsa::kernels::emulator::join_lanes("__reduce_and_sync", mask, value,
                                            [](T x, T y) { return x & y; });
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value) {
  return nsa::kernels::emulator::join_lanes("__reduce_add_sync", mask, value,
                                            [](T x, T y) { return x + y; });
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value) {
  return nsa::kernels::emulator::join_lanes("__reduce_max_sync", mask, value,
                                            [](T x, T y) { return x > y ? x : y; });
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value) {
  return nsa::kernels::emulator::join_lanes("__reduce_min_sync", mask, value,
                                            [](T x, T y) { return x < y ? x : y; });
}
/// Lanes that have this lane's value, bit for bit.
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  struct Own {
    T value;
    unsigned same;
  } own{value, 0};
  nsa::kernels::emulator::meet(
      "__match_any_sync", mask, &own, [](void* const(&lanes)[32], uint32_t named) {
        for (int i = 0; i < 32; ++i)
          for (int j = 0; j < 32; ++j)
            if ((named >> i & 1) && (named >> j & 1) &&
                std::memcmp(&static_cast<Own*>(lanes[i])->value,
                            &static_cast<Own*>(lanes[j])->value, sizeof(T)) == 0)
              static_cast<Own*>(lanes[i])->same |= 1u << j;
      });
  return own.same;
}
inline void __syncwarp(unsigned mask = ~0u) {
  nsa::kernels::emulator::meet("__syncwarp", mask, nullptr, [](void* const(&)[32], uint32_t) {});
}
inline void __syncthreads() { nsa::kernels::emulator::barrier(0, 0); }
inline int __syncthreads_count(int x) { return nsa::kernels::emulator::barrier(0, 0, x != 0); }
inline int __syncthreads_or(int x) { return __syncthreads_count(x) != 0; }
inline int __syncthreads_and(int x) { return __syncthreads_count(x == 0) == 0; }
inline void __threadfence() {}
inline void __threadfence_block() {}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
  return y;
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(uint64_t{x} * y >> 32);
}
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.f / x; }
/// Of x half turns.
inline void sincospi(double x, double* sine, double* cosine) {
  const double angle = std::remainder(x, 2.0) * 3.14159265358979323846;
  *sine = std::sin(angle);
  *cosine = std::cos(angle);
}
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
using std::isfinite, std::isinf, std::isnan, std::max, std::min;
inline unsigned min(unsigned x, int y) { return min(x, unsigned(y)); }
inline unsigned min(int x, unsigned y) { return min(unsigned(x), y); }
inline unsigned max(unsigned x, int y) { return max(x, unsigned(y)); }
inline unsigned max(int x, unsigned y) { return max(unsigned(x), y); }

template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
void __stcs(T* p, T x) {
  *p = x;
}
template <typename T>
void __stcg(T* p, T x) {
  *p = x;
}

template <typename T, typename U>
T atomicAdd(T* p, U x) {
  return std::exchange(*p, static_cast<T>(*p + x));
}
template <typename T, typename U>
T atomicOr(T* p, U x) {
  return std::exchange(*p, static_cast<T>(*p | x));
}
template <typename T, typename U>
T atomicAnd(T* p, U x) {
  return std::exchange(*p, static_cast<T>(*p & x));
}
template <typename T, typename U>
T atomicMax(T* p, U x) {
  return std::exchange(*p, std::max(*p, static_cast<T>(x)));
}
template <typename T, typename U>
T atomicMin(T* p, U x) {
  return std::exchange(*p, std::min(*p, static_cast<T>(x)));
}
template <typename T, typename U>
T atomicExch(T* p, U x) {
  return std::exchange(*p, static_cast<T>(x));
}
template <typename T, typename U, typename V>
T atomicCAS(T* p, U expected, V x) {
  const T old = *p;
  if (old == static_cast<T>(expected)) *p = static_cast<T>(x);
  return old;
}
