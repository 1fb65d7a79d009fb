#include "harness/stats/order_statistics.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace harness::stats {
namespace {

[[noreturn]] void reject(std::string_view what, size_t index, double value, const char* want) {
  throw std::invalid_argument(std::string(what) + ": sample " + std::to_string(index + 1) + " is " +
                              std::to_string(value) + "; samples must be " + want);
}

void require_some(std::span<const double> samples, std::string_view what) {
  if (samples.empty()) throw std::invalid_argument(std::string(what) + ": no samples");
}

/// P(Binomial(n, 1/2) = k), in logarithms so that large n does not underflow early.
double binomial_half(double n, double k) {
  return std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                  n * std::log(2.0));
}

}  // namespace

void require_positive(std::span<const double> samples, std::string_view what) {
  require_some(samples, what);
  for (size_t i = 0; i < samples.size(); ++i)
    if (!(std::isfinite(samples[i]) && samples[i] > 0))
      reject(what, i, samples[i], "positive and finite");
}

void require_finite(std::span<const double> samples, std::string_view what) {
  require_some(samples, what);
  for (size_t i = 0; i < samples.size(); ++i)
    if (!std::isfinite(samples[i])) reject(what, i, samples[i], "finite");
}

double median(std::span<const double> samples) {
  require_finite(samples, "median");
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  const size_t mid = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[mid] : 0.5 * (sorted[mid - 1] + sorted[mid]);
}

std::optional<Interval> median_interval(std::span<const double> samples, double level) {
  require_finite(samples, "median_interval");
  const size_t n = samples.size();
  size_t k = 0;     // how many order statistics may be cut off on each side, plus one
  double tail = 0;  // P(Binomial < k)
  for (double below = 0; k < (n + 1) / 2; ++k) {
    below += binomial_half(static_cast<double>(n), static_cast<double>(k));
    if (!(2 * below <= 1 - level)) break;
    tail = below;
  }
  if (k == 0) return std::nullopt;
  std::vector<double> sorted(samples.begin(), samples.end());
  std::ranges::sort(sorted);
  return Interval{sorted[k - 1], sorted[n - k], 1 - 2 * tail};
}

}  // namespace harness::stats
