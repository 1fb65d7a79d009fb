#include "suites/instrument/ceilings.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"

namespace suites {
namespace {

constexpr int64_t kSamples = 5, kCalls = 10;

double best_ms(at::Device device, const std::function<void()>& work) {
  EventTimer timer(device);
  time_calls_ms(timer, work, kCalls);  // warm-up: clocks rise, workspaces are made
  double best = time_calls_ms(timer, work, kCalls);
  for (int64_t i = 1; i < kSamples; ++i) best = std::min(best, time_calls_ms(timer, work, kCalls));
  return best;
}

}  // namespace

harness::trace::Ceilings measure_ceilings(at::Device device, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  const int64_t side = device.is_cpu() ? 256 : 8192;
  const int64_t bytes = device.is_cpu() ? int64_t{1} << 22 : int64_t{1} << 30;
  harness::trace::Ceilings ceilings;
  {
    const auto options = at::TensorOptions().device(device).dtype(type);
    const at::Tensor a = at::randn({side, side}, options), b = at::randn({side, side}, options);
    at::Tensor out = at::empty({side, side}, options);
    const double ms = best_ms(device, [&] { at::mm_out(out, a, b); });
    const auto n = static_cast<double>(side);
    ceilings.tflop_s = 2 * n * n * n / (ms * 1e9);
  }
  const auto options = at::TensorOptions().device(device).dtype(at::kByte);
  const at::Tensor from = at::zeros({bytes}, options);
  at::Tensor to = at::empty({bytes}, options);
  const double ms = best_ms(device, [&] { to.copy_(from); });
  ceilings.gb_s = 2 * static_cast<double>(bytes) / (ms * 1e6);
  ceilings.cache_bytes = static_cast<double>(cache_bytes(device));
  return ceilings;
}

}  // namespace suites
