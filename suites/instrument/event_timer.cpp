#include "suites/instrument/event_timer.h"

#include <c10/util/Exception.h>

#include <chrono>

#ifdef NSA_WITH_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#endif

namespace suites {

struct EventTimer::Impl {
  at::Device device;
  std::chrono::steady_clock::time_point begin = {};
#ifdef NSA_WITH_CUDA
  at::cuda::CUDAEvent first{cudaEventDefault}, last{cudaEventDefault};
#endif
};

EventTimer::EventTimer(at::Device device) : impl_(new Impl{.device = device}) {
#ifndef NSA_WITH_CUDA
  TORCH_CHECK(device.is_cpu(),
              "suites::EventTimer: device must be cpu in a build without CUDA, got ", device);
#endif
}
EventTimer::~EventTimer() = default;

void EventTimer::start() {
#ifdef NSA_WITH_CUDA
  if (impl_->device.is_cuda()) return impl_->first.record();
#endif
  impl_->begin = std::chrono::steady_clock::now();
}

double EventTimer::stop_ms() {
#ifdef NSA_WITH_CUDA
  if (impl_->device.is_cuda()) {
    impl_->last.record();
    impl_->last.synchronize();
    return impl_->first.elapsed_time(impl_->last);
  }
#endif
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - impl_->begin)
      .count();
}

void synchronize(at::Device device) {
#ifdef NSA_WITH_CUDA
  if (device.is_cuda()) c10::cuda::device_synchronize();
#else
  TORCH_CHECK(device.is_cpu(),
              "suites::synchronize: device must be cpu in a build without CUDA, got ", device);
#endif
}

double time_calls_ms(EventTimer& timer, const std::function<void()>& work, int64_t calls) {
  TORCH_CHECK(calls >= 1, "suites::time_calls_ms: calls must be >= 1, got ", calls);
  timer.start();
  for (int64_t i = 0; i < calls; ++i) work();
  return timer.stop_ms() / static_cast<double>(calls);
}

std::vector<double> time_row_ms(at::Device device, const std::function<void()>& work,
                                int64_t calls) {
  TORCH_CHECK(calls >= 1, "suites::time_row_ms: calls must be >= 1, got ", calls);
  std::vector<double> all;
  all.reserve(static_cast<size_t>(calls));
  work();
#ifdef NSA_WITH_CUDA
  if (device.is_cuda()) {
    // The end of a call is the begin of the next.
    std::vector<at::cuda::CUDAEvent> ends;
    for (int64_t i = 0; i <= calls; ++i) {
      if (i > 0) work();
      ends.emplace_back(cudaEventDefault).record();
    }
    ends.back().synchronize();
    for (size_t i = 1; i < ends.size(); ++i) all.push_back(ends[i - 1].elapsed_time(ends[i]));
    return all;
  }
#endif
  EventTimer timer(device);
  for (int64_t i = 0; i < calls; ++i) all.push_back(time_calls_ms(timer, work, 1));
  return all;
}

int64_t calls_per_sample(EventTimer& timer, const std::function<void()>& work, double min_sample_ms,
                         int64_t max_calls) {
  time_calls_ms(timer, work, 1);  // the first call pays for allocation and lazy initialisation
  int64_t calls = 1;
  while (calls < max_calls &&
         time_calls_ms(timer, work, calls) * static_cast<double>(calls) < min_sample_ms)
    calls *= 2;
  return calls;
}

}  // namespace suites
