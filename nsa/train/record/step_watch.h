#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace nsa::train {

/// Calls `on_stall` once, from a thread of its own, when `progress` was not called for
/// `allowance_s` seconds: a rank that waits for another one for ever must report that itself.
class StepWatch {
 public:
  StepWatch(double allowance_s, std::function<void(double silence_s)> on_stall);
  ~StepWatch();
  StepWatch(const StepWatch&) = delete;
  StepWatch& operator=(const StepWatch&) = delete;

  void progress();

 private:
  void watch();

  double allowance_s_;
  std::function<void(double)> on_stall_;
  std::atomic<double> last_progress_s_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace nsa::train
