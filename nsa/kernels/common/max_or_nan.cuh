#pragma once
#include <cmath>

namespace nsa::kernels::portable {

/// The larger one; NaN where one is.
__device__ inline float max_or_nan(float x, float y) {
#ifdef NSA_EMULATED
  return std::isnan(x) || std::isnan(y) ? NAN : std::fmax(x, y);
#else
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(x), "f"(y));
  return most;
#endif
}

}  // namespace nsa::kernels::portable
