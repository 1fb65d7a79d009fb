#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define NSA_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define NSA_HOST_DEVICE inline
#endif

namespace nsa::kernels {

/// Division of 0 <= x < 2^31 by a number known at launch.
struct Divisor {
  uint32_t value = 1, multiplier = 1u << 31, shift = 31;
  Divisor() = default;
  NSA_HOST_DEVICE explicit Divisor(int by) : value(static_cast<uint32_t>(by)) {
    uint32_t bits = 0;
    while ((uint64_t(1) << bits) < value) ++bits;
    shift = 31 + bits;
    multiplier = static_cast<uint32_t>(((uint64_t(1) << shift) + value - 1) / value);
  }
  NSA_HOST_DEVICE int quotient(int x) const {
    return static_cast<int>((uint64_t(x) * multiplier) >> shift);
  }
  NSA_HOST_DEVICE int remainder(int x) const { return x - quotient(x) * static_cast<int>(value); }
};

}  // namespace nsa::kernels
#undef NSA_HOST_DEVICE
