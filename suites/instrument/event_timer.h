#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace suites {

/// Times work of one device. CUDA: events on the current stream; where that is idle at start(),
/// what the host does before the first launch is inside. CPU: the steady clock.
class EventTimer {
 public:
  explicit EventTimer(at::Device device);
  ~EventTimer();
  EventTimer(const EventTimer&) = delete;
  EventTimer& operator=(const EventTimer&) = delete;

  void start();
  /// Waits for the work since start() and returns its duration in ms.
  double stop_ms();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Waits until the device has finished all queued work; nothing on a CPU.
void synchronize(at::Device device);

/// Duration of `calls` calls of `work`, in ms per call.
double time_calls_ms(EventTimer& timer, const std::function<void()>& work, int64_t calls);

/// Duration in ms of each of `calls` calls of `work`, enqueued one behind the other behind one that
/// is not timed, as a training step enqueues them: what the host does counts only where it takes
/// longer than the device. CPU: each by the clock.
std::vector<double> time_row_ms(at::Device device, const std::function<void()>& work,
                                int64_t calls);

/// Calls that make one sample last at least `min_sample_ms`: found by doubling from one call, which
/// also warms up.
int64_t calls_per_sample(EventTimer& timer, const std::function<void()>& work, double min_sample_ms,
                         int64_t max_calls = 1 << 16);

}  // namespace suites
