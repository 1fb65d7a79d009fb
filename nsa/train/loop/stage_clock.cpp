#include "nsa/train/loop/stage_clock.h"

#include <ATen/DeviceAccelerator.h>

namespace nsa::train {
namespace {

double milliseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

}  // namespace

const char* stage_name(Stage stage) {
  constexpr const char* kNames[kNumStages] = {"load",      "forward",    "backward",
                                              "optimizer", "collective", "graph"};
  return kNames[static_cast<size_t>(stage)];
}

StageClock::StageClock(c10::Device device, bool wait_each)
    : device_(device), wait_each_(wait_each) {}

void StageClock::wait() const {
  if (!device_.is_cpu()) at::accelerator::synchronizeDevice(device_.index());
}

void StageClock::add_border(Stage stage) {
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  if (!device_.is_cpu()) event.record(at::accelerator::getCurrentStream(device_.index()));
  if (wait_each_) wait();
  borders_.push_back({stage, std::chrono::steady_clock::now(), std::move(event)});
}

void StageClock::start() {
  borders_.clear();
  stage_ms_ = {};
  start_ = std::chrono::steady_clock::now();
  add_border(Stage::kLoad);
}

void StageClock::end_stage(Stage stage) { add_border(stage); }

void StageClock::finish() {
  wait();
  total_ms_ = milliseconds(std::chrono::steady_clock::now() - start_);
  for (size_t i = 1; i < borders_.size(); ++i) {
    const double ms = device_.is_cpu() ? milliseconds(borders_[i].host - borders_[i - 1].host)
                                       : borders_[i - 1].event.elapsedTime(borders_[i].event);
    stage_ms_[static_cast<size_t>(borders_[i].stage)] += ms;
  }
}

}  // namespace nsa::train
