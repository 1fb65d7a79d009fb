#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace harness::stats {

/// Levels of the two intervals every measured figure carries: verdicts use the first, readers see
/// both.
inline constexpr double kVerdictLevel = 0.99;
inline constexpr double kShownLevel = 0.95;

/// The level of each of several planned looks at growing evidence: the error of 1 % is split evenly
/// (Bonferroni), so that all looks together keep kVerdictLevel, whichever of them stops.
constexpr double level_each(int64_t looks) {
  return looks <= 1 ? kVerdictLevel : 1 - (1 - kVerdictLevel) / static_cast<double>(looks);
}

/// A confidence interval. `level` is what it attains, at least what was asked for.
struct Interval {
  double lo = 0;
  double hi = 0;
  double level = 0;
};

/// Throws std::invalid_argument "WHAT: sample I is X; samples must be positive and finite" (I
/// counts from 1), or "WHAT: no samples".
void require_positive(std::span<const double> samples, std::string_view what);

/// The same for samples that may be zero or negative: "samples must be finite".
void require_finite(std::span<const double> samples, std::string_view what);

/// Median; the mean of the middle two for even n. Throws std::invalid_argument on no or non-finite
/// samples.
double median(std::span<const double> samples);

/// Distribution-free interval of the median: [x_(k), x_(n+1-k)], k the largest with
/// 2 P(Binomial(n, 1/2) < k) <= 1 - level. None when n is too small (n < 8 for 99 %, n < 6 for
/// 95 %). Assumes independent samples of one distribution, nothing else.
std::optional<Interval> median_interval(std::span<const double> samples, double level);

}  // namespace harness::stats
