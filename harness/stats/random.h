#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace harness::stats {

/// Seeded random numbers that are the same on every machine: the engine is fixed by the C++
/// standard, and the mappings are written out here because those of <random> differ by library.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  /// Uniform on [0, 1), 53 bits.
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

  /// Uniform on {0, ..., n - 1}, n > 0; without bias.
  uint64_t below(uint64_t n) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % n;
    uint64_t x = engine_();
    while (x >= limit) x = engine_();
    return x % n;
  }

  /// Standard normal, Box-Muller.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace harness::stats
