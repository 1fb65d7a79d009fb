#pragma once

namespace nsa::device::sm90 {

/// 2^x in one instruction; results below the least normal number are 0.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace nsa::device::sm90
