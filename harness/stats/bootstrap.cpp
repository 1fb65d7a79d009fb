#include "harness/stats/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "harness/stats/distributions.h"
#include "harness/stats/random.h"

namespace harness::stats {
namespace {

std::vector<double> replicates(std::span<const double> samples, const Statistic& statistic,
                               uint64_t seed, int resamples) {
  Random random(seed);
  std::vector<double> resample(samples.size()), result;
  for (int i = 0; i < resamples; ++i) {
    for (double& x : resample) x = samples[random.below(samples.size())];
    result.push_back(statistic(resample));
  }
  std::ranges::sort(result);
  return result;
}

/// Jackknife acceleration: sum(u^3) / (6 sum(u^2)^1.5), u the centred leave-one-out values.
double acceleration(std::span<const double> samples, const Statistic& statistic) {
  std::vector<double> left_out, values;
  for (size_t skip = 0; skip < samples.size(); ++skip) {
    left_out.assign(samples.begin(), samples.end());
    left_out.erase(left_out.begin() + static_cast<ptrdiff_t>(skip));
    values.push_back(statistic(left_out));
  }
  double mean = 0;
  for (const double v : values) mean += v / static_cast<double>(values.size());
  double squares = 0, cubes = 0;
  for (const double v : values) {
    squares += (mean - v) * (mean - v);
    cubes += (mean - v) * (mean - v) * (mean - v);
  }
  return squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;
}

}  // namespace

Interval bca_interval(std::span<const double> samples, const Statistic& statistic, double level,
                      uint64_t seed, int resamples) {
  require_finite(samples, "bca_interval");
  if (samples.size() < 2 || resamples < 100)
    throw std::invalid_argument("bca_interval: needs at least 2 samples and 100 resamples");
  const double estimate = statistic(samples);
  const std::vector<double> sorted = replicates(samples, statistic, seed, resamples);
  if (sorted.front() == sorted.back()) return {estimate, estimate, level};
  const auto count = static_cast<double>(sorted.size());
  const auto below = std::ranges::count_if(sorted, [&](double v) { return v < estimate; });
  const auto equal = std::ranges::count(sorted, estimate);
  const double share = (static_cast<double>(below) + 0.5 * static_cast<double>(equal)) / count;
  const double bias = normal_quantile(std::clamp(share, 0.5 / count, 1 - 0.5 / count));
  const double accel = acceleration(samples, statistic);
  const auto at = [&](double p) {
    const double z = bias + normal_quantile(p);
    const double adjusted = normal_cdf(bias + z / (1 - accel * z));
    return sorted[static_cast<size_t>(std::clamp(adjusted * count, 0.0, count - 1))];
  };
  return {at((1 - level) / 2), at((1 + level) / 2), level};
}

}  // namespace harness::stats
