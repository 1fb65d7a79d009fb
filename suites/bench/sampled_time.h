#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace suites {

/// Samples of single calls, ms.
struct SampledTime {
  std::vector<double> hot;       ///< calls in a row, enqueued one behind the other
  std::vector<double> alone;     ///< calls each waited for: what the host does first is inside
  std::vector<double> cold;      ///< after 512 MiB were written, more than any L2 holds; CUDA only
  std::optional<double> sm_mhz;  ///< right behind the hot calls; CUDA only
  std::string clock_events;      ///< what held the clock down then (clock_events.h)
};

/// What is sampled besides hot calls, 20 times each.
struct SampleKinds {
  bool alone = false, cold = false;
};

/// After three calls to warm up: at least 20 samples and `seconds` of them, hot; then what `kinds`
/// asks for.
SampledTime sample_time(at::Device device, const std::function<void()>& work, double seconds,
                        SampleKinds kinds);

/// {"n", "median_ms", "lo_ms", "hi_ms", "samples_ms"}: distribution-free interval of the median at
/// 99 %; null where n is too small. Samples have seven digits. Throws std::invalid_argument on
/// samples that no clock gives.
nlohmann::json time_json(const std::vector<double>& measured_ms);

}  // namespace suites
