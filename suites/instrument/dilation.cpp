#include "suites/instrument/dilation.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>

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

}  // namespace

double median(std::vector<double> values) {
  TORCH_CHECK(!values.empty(), "suites::median: values must be at least one, got none");
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::vector<OffOnPair> time_off_on(const SwitchedStep& step, int64_t pairs, int64_t arm_steps) {
  const auto arm_ms = [&](const char* what) {
    step.run_ms(what);
    std::vector<double> ms;
    for (int64_t i = 0; i < arm_steps; ++i) ms.push_back(step.run_ms(what));
    return median(std::move(ms));
  };
  std::vector<OffOnPair> times;
  for (int64_t i = 0; i < pairs; ++i) {
    OffOnPair pair;
    if (i % 2 == 0) pair.off_ms = arm_ms("off");
    step.on();
    pair.on_ms = arm_ms("on");
    step.off();
    if (i % 2 == 1) pair.off_ms = arm_ms("off");
    times.push_back(pair);
  }
  return times;
}

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
