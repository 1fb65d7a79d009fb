#include "suites/instrument/dilation.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace suites {
namespace {

constexpr double kLevel = 0.95;
constexpr size_t kFewestPairs = 6;  // 1 - 2 * 2^-6 = 0.969

/// P(X <= k) of a fair coin thrown n times.
double binomial_tail(size_t n, size_t k) {
  double term = std::pow(0.5, static_cast<double>(n)), total = term;
  for (size_t i = 1; i <= k; ++i) {
    term *= static_cast<double>(n - i + 1) / static_cast<double>(i);
    total += term;
  }
  return total;
}

double median(const std::vector<double>& sorted) {
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

Dilation measure_dilation(const std::vector<OffOnPair>& pairs) {
  TORCH_CHECK(pairs.size() >= kFewestPairs,
              "suites::measure_dilation: pairs must be >= ", kFewestPairs, ", got ", pairs.size());
  std::vector<double> excess;
  for (const OffOnPair& pair : pairs) {
    TORCH_CHECK(pair.off_ms > 0 && pair.on_ms > 0,
                "suites::measure_dilation: times must be positive, got ", pair.off_ms, " and ",
                pair.on_ms);
    excess.push_back(100 * (pair.on_ms / pair.off_ms - 1));
  }
  std::sort(excess.begin(), excess.end());
  size_t skip = 0;  // order statistics left out at each end
  while (1 - 2 * binomial_tail(excess.size(), skip + 1) >= kLevel) ++skip;
  return {.pct = median(excess),
          .lo_pct = excess[skip],
          .hi_pct = excess[excess.size() - 1 - skip],
          .level = 1 - 2 * binomial_tail(excess.size(), skip)};
}

}  // namespace suites
