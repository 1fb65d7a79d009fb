#pragma once
#include <cstdint>

namespace nsa::kernels {

/// The smallest integer that is not below a / b, for a >= 0 and b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace nsa::kernels
