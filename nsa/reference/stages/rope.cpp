#include "nsa/reference/stages/rope.h"

#include <cmath>

namespace nsa::reference {

std::vector<double> rope_frequencies(int64_t head_dim, double base) {
  if (head_dim % 2 != 0) reject("rope", "qk_head_dim", "even", std::to_string(head_dim));
  std::vector<double> frequency;
  for (int64_t m = 0; m < head_dim / 2; ++m)
    frequency.push_back(
        std::pow(base, -2.0 * static_cast<double>(m) / static_cast<double>(head_dim)));
  return frequency;
}

void rotate(std::span<double> x, int64_t position, std::span<const double> frequency,
            RopePairs pairs) {
  const bool halves = pairs == RopePairs::kHalfSplit;
  for (size_t m = 0; m < frequency.size(); ++m) {
    const double angle = static_cast<double>(position) * frequency[m];
    const double c = std::cos(angle), s = std::sin(angle);
    const size_t i = halves ? m : 2 * m, j = halves ? m + frequency.size() : 2 * m + 1;
    const double first = x[i], second = x[j];
    x[i] = first * c - second * s;
    x[j] = first * s + second * c;
  }
}

Tensor<double> rope(const Tensor<double>& x, double base, RopePairs pairs) {
  require_rank("rope", "x", x, 4, "[B,S,H,dk]");
  const std::vector<double> frequency = rope_frequencies(x.size(3), base);
  Tensor<double> rotated = x;
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t t = 0; t < x.size(1); ++t)
      for (int64_t h = 0; h < x.size(2); ++h) rotate(rotated.row(b, t, h), t, frequency, pairs);
  return rotated;
}

}  // namespace nsa::reference
