#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "harness/stats/order_statistics.h"

namespace harness::stats {

using Statistic = std::function<double(std::span<const double>)>;

/// BCa bootstrap interval (bias-corrected and accelerated; Efron 1987) of `statistic`, seeded, the
/// same on every machine. For readers who expect one; verdicts use the exact interval.
/// n >= 2 finite samples, resamples >= 100. All samples equal: the interval is that point.
Interval bca_interval(std::span<const double> samples, const Statistic& statistic, double level,
                      uint64_t seed, int resamples = 999);

}  // namespace harness::stats
