#include "harness/stats/within_run.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/stats/distributions.h"

namespace harness::stats {
namespace {

constexpr size_t kMinBlocks = 8;

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

/// Means of `count` blocks of nearly equal length; every step belongs to one.
std::vector<double> block_means(std::span<const double> times, size_t count) {
  std::vector<double> means;
  for (size_t b = 0; b < count; ++b) {
    const size_t begin = b * times.size() / count, end = (b + 1) * times.size() / count;
    means.push_back(mean_of(times.subspan(begin, end - begin)));
  }
  return means;
}

double lag1_autocorrelation(std::span<const double> values) {
  const double mean = mean_of(values);
  double products = 0, squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += (values[i] - mean) * (values[i] - mean);
    if (i > 0) products += (values[i] - mean) * (values[i - 1] - mean);
  }
  return squares > 0 ? products / squares : 0;
}

double standard_error(std::span<const double> means) {
  const double mean = mean_of(means), count = static_cast<double>(means.size());
  double squares = 0;
  for (const double m : means) squares += (m - mean) * (m - mean);
  return std::sqrt(squares / (count - 1) / count);
}

}  // namespace

WithinRun within_run_mean(std::span<const double> step_times, double guard_band) {
  require_positive(step_times, "step times");
  WithinRun run;
  run.mean = mean_of(step_times);
  if (step_times.size() < kMinRateSteps) return run;

  size_t count = step_times.size();
  std::vector<double> means = block_means(step_times, count);
  const auto correlated = [&] {
    run.autocorrelation = lag1_autocorrelation(means);
    return run.autocorrelation > 1.645 / std::sqrt(static_cast<double>(count));
  };
  bool remains = correlated();
  while (remains && count / 2 >= kMinBlocks) {
    count /= 2;
    means = block_means(step_times, count);
    remains = correlated();
  }
  run.blocks = static_cast<int64_t>(count);
  run.block_length = static_cast<int64_t>(step_times.size() / count);
  if (remains) {
    const double rho = std::min(run.autocorrelation, 0.95);
    run.inflation = std::sqrt((1 + rho) / (1 - rho));
  }
  const auto interval = [&](double level) -> std::optional<Interval> {
    const double half = student_t_quantile((1 + level) / 2, static_cast<double>(count - 1)) *
                        standard_error(means) * run.inflation;
    if (!(half < run.mean)) return std::nullopt;  // so noisy that nothing is bounded
    return Interval{(run.mean - half) * (1 - guard_band), (run.mean + half) * (1 + guard_band),
                    level};
  };
  run.verdict_interval = interval(kVerdictLevel);
  run.shown_interval = interval(kShownLevel);
  return run;
}

}  // namespace harness::stats
