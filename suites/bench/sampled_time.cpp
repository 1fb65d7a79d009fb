#include "suites/bench/sampled_time.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>

#include "harness/results/number.h"
#include "suites/instrument/cache_flush.h"
#include "suites/instrument/clock_events.h"
#include "suites/instrument/clock_probe.h"
#include "suites/instrument/event_timer.h"

namespace suites {
namespace {

constexpr int64_t kWarmUps = 3, kLeastSamples = 20, kMostSamples = 500, kCallsInRow = 10;
constexpr double kLevel = 0.99;
constexpr int kDigits = 7;  ///< of a float, which an event's time is: beyond what clocks resolve

/// How many of n sorted samples may be left out at either end: the largest k with
/// 2 P(Binomial(n, 1/2) <= k - 1) <= 1 - level; -1 where n is too small for any interval.
int64_t left_out(int64_t n, double level) {
  double term = std::pow(0.5, n), below = term;
  int64_t count = 0;
  while (2 * below <= 1 - level) {
    ++count;
    term *= static_cast<double>(n - count + 1) / static_cast<double>(count);
    below += term;
  }
  return count - 1;
}

}  // namespace

SampledTime sample_time(at::Device device, const std::function<void()>& work, double seconds,
                        SampleKinds kinds) {
  using Clock = std::chrono::steady_clock;
  EventTimer timer(device);
  SampledTime out;
  for (int64_t i = 0; i < kWarmUps; ++i) work();
  synchronize(device);
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const auto count = [&] { return static_cast<int64_t>(out.hot.size()); };
  while (count() < kMostSamples && (count() < kLeastSamples || elapsed() < seconds)) {
    const std::vector<double> row = time_row_ms(device, work, kCallsInRow);
    out.hot.insert(out.hot.end(), row.begin(), row.end());
  }
  out.clock_events = clock_events(device);
  out.sm_mhz = sm_clock_mhz(device);
  for (int64_t i = 0; kinds.alone && i < kLeastSamples; ++i)
    out.alone.push_back(time_calls_ms(timer, work, 1));
  if (!kinds.cold || !device.is_cuda()) return out;
  CacheFlush flush(device);
  for (int64_t i = 0; i < kLeastSamples; ++i) {
    flush();
    out.cold.push_back(time_calls_ms(timer, work, 1));
  }
  return out;
}

nlohmann::json time_json(const std::vector<double>& measured_ms) {
  std::vector<double> samples_ms;
  for (const double ms : measured_ms) samples_ms.push_back(harness::round_significant(ms, kDigits));
  std::vector<double> sorted = samples_ms;
  if (sorted.empty()) throw std::invalid_argument("nsa-bench: no samples");
  for (const double ms : sorted)
    if (!(ms > 0 && std::isfinite(ms)))
      throw std::invalid_argument("nsa-bench: a call took " + std::to_string(ms) + " ms");
  std::sort(sorted.begin(), sorted.end());
  const size_t n = sorted.size();
  const int64_t out = left_out(static_cast<int64_t>(n), kLevel);
  const auto at = [&](size_t i) { return out < 0 ? nlohmann::json() : nlohmann::json(sorted[i]); };
  return {{"n", n},
          {"median_ms", (sorted[(n - 1) / 2] + sorted[n / 2]) / 2},
          {"lo_ms", at(static_cast<size_t>(out))},
          {"hi_ms", at(n - 1 - static_cast<size_t>(out))},
          {"samples_ms", samples_ms}};
}

}  // namespace suites
