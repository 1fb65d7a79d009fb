// A table of (cos, sin) for tests: of no angle that is some position's, so that another row of it
// gives other values.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <random>
#include <vector>

namespace nsa::kernels::emulator {

/// [tokens, dim / 2]. Ten bits each, so that products with 16-bit numbers are exact in fp32.
inline std::vector<float2> cos_sin_for_test(int tokens, int dim) {
  std::vector<float2> cos_sin;
  std::mt19937_64 random(11);
  const auto short_number = [](double x) { return std::ldexp(float(std::lround(x * 1024)), -10); };
  for (int i = 0; i < tokens * dim / 2; ++i) {
    const double angle = double(random() % 6283) / 1000;
    cos_sin.push_back(make_float2(short_number(std::cos(angle)), short_number(std::sin(angle))));
  }
  return cos_sin;
}

}  // namespace nsa::kernels::emulator
