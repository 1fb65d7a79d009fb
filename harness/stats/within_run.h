#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "harness/stats/order_statistics.h"

namespace harness::stats {

/// Guard bands of rates measured inside one process, as fractions. A within-run interval cannot see
/// what differs from run to run (placement, clocks, neighbours), so its bounds are moved outwards
/// by this much, and the report states it.
inline constexpr double kGpuGuardBand = 0.02;
inline constexpr double kCpuGuardBand = 0.05;

/// Fewer steps than this give a mean without an interval.
inline constexpr size_t kMinRateSteps = 20;

struct WithinRun {
  double mean = 0;                                           ///< mean step time
  std::optional<Interval> verdict_interval, shown_interval;  ///< 99 % and 95 %, guard band included
  int64_t blocks = 0;                                        ///< blocks whose means are compared
  int64_t block_length = 0;                                  ///< steps a block, rounded down
  double autocorrelation = 0;                                ///< lag 1, of the block means
  double inflation = 1;  ///< factor on the standard error where blocks stay correlated
};

/// Mean time of the steps of one steady run, by non-overlapping block means. Blocks double in
/// length until the lag-1 autocorrelation of their means is below 1.645 / sqrt(blocks), at no fewer
/// than 8 blocks; correlation that remains widens the interval by sqrt((1 + rho) / (1 - rho)), rho
/// <= 0.95. Student interval over the block means, then the guard band. Times must be positive and
/// finite.
WithinRun within_run_mean(std::span<const double> step_times, double guard_band);

}  // namespace harness::stats
