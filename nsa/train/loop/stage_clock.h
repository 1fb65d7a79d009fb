#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <array>
#include <chrono>
#include <vector>

namespace nsa::train {

enum class Stage { kLoad, kForward, kBackward, kOptimizer, kCollective, kGraph };
inline constexpr size_t kNumStages = 6;
/// load, forward, backward, optimizer, collective, graph (the three in the middle as one launch):
/// as in heartbeats.
const char* stage_name(Stage stage);

/// Times the stages of one optimizer step, device work included. On a GPU the borders are events on
/// the current stream, read when the step is over, so that timing waits for nothing; with
/// `wait_each` every border waits for the device.
class StageClock {
 public:
  StageClock(c10::Device device, bool wait_each);

  void start();
  /// Ends a stage; a stage may end several times (accumulation), its times add up.
  void end_stage(Stage stage);
  /// Waits for the device and reads the clock.
  void finish();

  double stage_ms(Stage stage) const { return stage_ms_[static_cast<size_t>(stage)]; }
  double total_ms() const { return total_ms_; }

 private:
  using HostTime = std::chrono::steady_clock::time_point;
  struct Border {
    Stage stage;
    HostTime host;
    c10::Event event;
  };
  void add_border(Stage stage);
  void wait() const;

  c10::Device device_;
  bool wait_each_;
  HostTime start_;
  std::vector<Border> borders_;  ///< the first one is the start
  std::array<double, kNumStages> stage_ms_{};
  double total_ms_ = 0;
};

}  // namespace nsa::train
