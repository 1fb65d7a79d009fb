#include "suites/instrument/clock_probe.h"

#ifdef NSA_WITH_CUDA
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "suites/instrument/clock_probe_launch.h"
#endif

namespace suites {

std::optional<double> sm_clock_mhz(at::Device device) {
#ifdef NSA_WITH_CUDA
  if (!device.is_cuda()) return std::nullopt;
  constexpr int64_t kSpinNs = 100'000;
  const at::Tensor readings = at::zeros({2}, at::TensorOptions().dtype(at::kLong).device(device));
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
  C10_CUDA_CHECK(clock_probe_launch(readings.mutable_data_ptr<int64_t>(), kSpinNs, stream));
  const at::Tensor host = readings.to(at::kCPU);
  const int64_t cycles = host[0].item<int64_t>(), ns = host[1].item<int64_t>();
  return static_cast<double>(cycles) * 1e3 / static_cast<double>(ns);
#else
  static_cast<void>(device);
  return std::nullopt;
#endif
}

}  // namespace suites
