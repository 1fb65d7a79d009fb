#include "nsa/train/record/step_watch.h"

#include <algorithm>
#include <chrono>

namespace nsa::train {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StepWatch::StepWatch(double allowance_s, std::function<void(double)> on_stall)
    : allowance_s_(allowance_s),
      on_stall_(std::move(on_stall)),
      last_progress_s_(now_s()),
      thread_([this] { watch(); }) {}

StepWatch::~StepWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void StepWatch::progress() { last_progress_s_ = now_s(); }

void StepWatch::watch() {
  const auto interval = std::chrono::duration<double>(std::clamp(allowance_s_ / 20, 0.01, 1.0));
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, interval, [this] { return stopping_; })) {
    const double silence_s = now_s() - last_progress_s_;
    if (!(silence_s > allowance_s_)) continue;
    on_stall_(silence_s);
    return;
  }
}

}  // namespace nsa::train
