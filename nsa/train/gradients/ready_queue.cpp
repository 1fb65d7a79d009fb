#include "nsa/train/gradients/ready_queue.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>

namespace nsa::train {
namespace {

/// Between two looks at an event: short against a sum, long against what a look costs.
constexpr std::chrono::microseconds kLook(10);

std::vector<c10::Device> future_devices(c10::Device device) {
  return device.is_cpu() ? std::vector<c10::Device>() : std::vector<c10::Device>{device};
}

void drop(const ReadyQueue::FuturePtr& result) {
  result->setError(
      std::make_exception_ptr(std::runtime_error("dropped, as its queue ended before it began")));
}

}  // namespace

ReadyQueue::ReadyQueue(c10::Device device) : device_(device), thread_([this] { work(); }) {}

ReadyQueue::~ReadyQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (const Entry& entry : entries_) drop(entry.result);
}

ReadyQueue::FuturePtr ReadyQueue::push(Call call, bool in_order) {
  Entry entry{
      {},
      std::move(call),
      c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), future_devices(device_)),
      in_order};
  if (!device_.is_cpu()) {
    entry.inputs.emplace(device_.type());
    entry.inputs->record(at::accelerator::getCurrentStream(device_.index()));
  }
  FuturePtr result = entry.result;
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back(std::move(entry));
  }
  changed_.notify_all();
  return result;
}

bool ReadyQueue::stopping() const {
  const std::lock_guard lock(mutex_);
  return stop_;
}

/// Whether the inputs are there, or the stream waits for them; false: the queue ends.
bool ReadyQueue::await(const Entry& entry) const {
  if (entry.inputs && entry.in_order) {
    entry.inputs->block(at::accelerator::getCurrentStream(device_.index()));
    return true;
  }
  while (entry.inputs && !entry.inputs->query()) {
    if (stopping()) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

void ReadyQueue::begin(const Entry& entry) const {
  try {
    if (!await(entry)) return drop(entry.result);
    entry.call()->addCallback([result = entry.result](c10::ivalue::Future& done) {
      if (done.hasError())
        result->setError(done.exception_ptr());
      else
        result->markCompleted(done.value());
    });
  } catch (...) {
    entry.result->setError(std::current_exception());
  }
}

void ReadyQueue::work() {
  const c10::NoGradGuard no_grad;
  const c10::OptionalDeviceGuard device(device_);
  c10::OptionalStreamGuard stream;
  if (!device_.is_cpu())
    stream.reset_stream(
        c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_));
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || !entries_.empty(); });
    if (stop_) return;
    const Entry entry = std::move(entries_.front());
    entries_.pop_front();
    lock.unlock();
    begin(entry);
  }
}

}  // namespace nsa::train
