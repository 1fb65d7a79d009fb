// What fp32 arithmetic may make of a value that fp64 loops compute, and whether stored numbers are
// that: for tests of kernels that compute in fp32 and round once.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "nsa/kernels/tests/emulator/numbers.h"
#include "nsa/kernels/tests/emulator/order.h"

namespace nsa::kernels::emulator {

/// A value and how far fp32 may be from it: every operation adds its own rounding to what its
/// operands have.
struct Near {
  double value = 0, error = 0;
  static constexpr double kUnit = 0x1p-24;  // of an fp32 operation, relative

  Near() = default;
  Near(double exact) : value(exact) {}  // NOLINT: numbers are read as they are
  Near(double x, double inherited) : value(x), error(inherited + kUnit * std::fabs(x)) {}
};
inline Near operator-(const Near& x) {
  Near y = x;
  y.value = -x.value;
  return y;
}
inline Near operator+(const Near& x, const Near& y) {
  return {x.value + y.value, x.error + y.error};
}
inline Near operator-(const Near& x, const Near& y) { return x + -y; }
inline Near operator*(const Near& x, const Near& y) {
  return {x.value * y.value, std::fabs(x.value) * y.error + std::fabs(y.value) * x.error};
}
inline Near operator/(const Near& x, const Near& y) {
  const double quotient = x.value / y.value;
  if (std::isinf(y.value)) return quotient;
  return {quotient, (x.error + std::fabs(quotient) * y.error) / std::fabs(y.value)};
}
inline Near root(const Near& x) {
  const double value = std::sqrt(x.value);
  return {value, x.error / (2 * value)};
}
/// Libraries promise no more than two units.
inline Near power_of_e(const Near& x) {
  const double value = std::exp(x.value);
  return {value, value * (x.error + Near::kUnit)};
}
inline Near sigmoid(const Near& x) { return Near(1) / (Near(1) + power_of_e(-x)); }

/// A sum in an order of its own, whose longest chain is of `depth` additions.
struct Sum {
  double value = 0, magnitude = 0, error = 0;
  void operator+=(const Near& x) {
    value += x.value, magnitude += std::fabs(x.value), error += x.error;
  }
  Near after(int depth) const {
    Near total(value);
    total.error = error + depth * Near::kUnit * magnitude;
    return total;
  }
};

/// The error of rounding x to the type once.
inline double rounding_error(double x, bool half) {
  const int lowest = half ? -14 : -126, bits = half ? 11 : 8;
  const int exponent = x == 0 ? lowest : std::max(std::ilogb(x), lowest);
  return std::ldexp(0.5, exponent - bits + 1);
}

/// Not finite in the same way, or within the error and `rounding`. A value below fp32's normal
/// numbers may be 0.
inline bool is_near(double have, const Near& want, double rounding) {
  if (std::isnan(want.value)) return std::isnan(have);
  if (std::isinf(want.value)) return have == want.value;
  return std::isfinite(want.error) &&
         std::fabs(have - want.value) <= want.error + rounding + double{0x1p-126f};
}

/// Numbers of the type, each rounded once.
inline void expect_numbers(const std::vector<uint16_t>& have, const std::vector<Near>& want,
                           bool half, const char* what) {
  ASSERT_EQ(have.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    const double h = value_of(have[i], half);
    const Near& w = want[i];
    ASSERT_TRUE(is_near(h, w, std::isfinite(w.value) ? rounding_error(w.value, half) : 0))
        << what << "[" << i << "] is " << h << ", not " << w.value << " +- " << w.error;
  }
}
inline void expect_floats(const std::vector<float>& have, const std::vector<Near>& want,
                          const char* what) {
  ASSERT_EQ(have.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_TRUE(is_near(have[i], want[i], 0)) << what << "[" << i << "] is " << have[i] << ", not "
                                              << want[i].value << " +- " << want[i].error;
}

/// The type's number next to x once it has been rounded to fp32.
inline uint16_t twice_rounded(double x, bool half) { return bits_of(static_cast<float>(x), half); }

/// Floats that are the same if their bits are.
struct Floats : std::vector<float> {
  using std::vector<float>::vector;
  bool operator==(const Floats& other) const {
    return size() == other.size() &&
           (empty() || std::memcmp(data(), other.data(), size() * sizeof(float)) == 0);
  }
};

/// Calls run() in several orders of blocks, warps and lanes; its results must have the same bits.
template <typename Run>
auto in_every_order(const Run& run) {
  set_order(0);
  const auto first = run();
  for (const uint64_t order : {1, 2, 3, 6}) {
    set_order(order);
    EXPECT_TRUE(run() == first) << "other bits in order " << order;
  }
  return first;
}

/// Nothing of it was written yet.
inline std::vector<uint16_t> unwritten(size_t size) { return std::vector<uint16_t>(size, 0xffff); }

}  // namespace nsa::kernels::emulator
