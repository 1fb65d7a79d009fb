#include "suites/bench/sampled_time.h"

#include <ATen/ATen.h>

#include <chrono>

#include "harness/stats/order_statistics.h"
#include "suites/instrument/event_timer.h"

namespace suites {
namespace {

constexpr int64_t kWarmUps = 3, kLeastSamples = 20, kMostSamples = 500;
constexpr int64_t kFlushBytes = int64_t{512} << 20;
constexpr double kLevel = 0.99;

}  // namespace

SampledTime sample_time(at::Device device, const std::function<void()>& work, double seconds,
                        bool cold) {
  using Clock = std::chrono::steady_clock;
  EventTimer timer(device);
  SampledTime out;
  for (int64_t i = 0; i < kWarmUps; ++i) work();
  synchronize(device);
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const auto count = [&] { return static_cast<int64_t>(out.hot.size()); };
  while (count() < kMostSamples && (count() < kLeastSamples || elapsed() < seconds))
    out.hot.push_back(time_calls_ms(timer, work, 1));
  if (!cold || !device.is_cuda()) return out;
  const at::Tensor flush =
      at::empty({kFlushBytes}, at::TensorOptions().dtype(at::kByte).device(device));
  for (int64_t i = 0; i < kLeastSamples; ++i) {
    flush.fill_(i);
    out.cold.push_back(time_calls_ms(timer, work, 1));
  }
  return out;
}

nlohmann::json time_json(const std::vector<double>& samples_ms) {
  harness::stats::require_positive(samples_ms, "nsa-bench");
  const auto interval = harness::stats::median_interval(samples_ms, kLevel);
  const auto or_null = [&](double harness::stats::Interval::* end) {
    return interval ? nlohmann::json((*interval).*end) : nlohmann::json();
  };
  return {{"n", samples_ms.size()},
          {"median_ms", harness::stats::median(samples_ms)},
          {"lo_ms", or_null(&harness::stats::Interval::lo)},
          {"hi_ms", or_null(&harness::stats::Interval::hi)},
          {"samples_ms", samples_ms}};
}

}  // namespace suites
