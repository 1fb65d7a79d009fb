#include "nsa/core/kernel_code.h"

#include <ATen/ATen.h>

#include <atomic>
#include <stdexcept>

#include "nsa/core/device_problem.h"

#ifdef NSA_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif

namespace nsa {
namespace {

std::atomic<bool>& sm80_wanted() {
  static std::atomic<bool> wanted{false};
  return wanted;
}

}  // namespace

void want_kernels(const std::string& code) {
  if (code != "auto" && code != "sm80")
    throw std::invalid_argument("NSA_KERNELS must be auto or sm80, got '" + code + "'");
  sm80_wanted() = code == "sm80";
}

#ifdef NSA_WITH_CUDA
// The code of sm_80 agrees with the oracle in emulation on a CPU; it has not run on a GPU yet, so
// nothing chooses it by itself.
constexpr bool kSm80IsChosen = false;

device::Code tile_kernel_code(const at::Tensor& q) {
  const int major = at::cuda::getDeviceProperties(q.get_device())->major;
  return sm80_wanted() || major == 8 ? device::Code::kSm80 : device::Code::kSm90;
}

std::string tile_kernel_obstacle(const at::Tensor& q) {
  if (sm80_wanted()) return kernel_obstacle(q, /*least_major=*/8, /*only=*/false);
  const std::string best = kernel_obstacle(q, /*least_major=*/9, /*only=*/true);
  if (best.empty() || !q.is_cuda() || !kernel_obstacle(q, 8, /*only=*/true).empty()) return best;
  return kSm80IsChosen ? ""
                       : "the kernels of compute capability 8.0 have not been run on a card yet; "
                         "NSA_KERNELS=sm80 runs them";
}

std::string tile_kernel_detail(const at::Tensor& q) {
  const bool later = kernel_obstacle(q, /*least_major=*/9, /*only=*/false).empty();
  return later && tile_kernel_code(q) == device::Code::kSm80 ? "sm_80" : "";
}
#else
std::string tile_kernel_obstacle(const at::Tensor& q) { return kernel_obstacle(q, 0, false); }
std::string tile_kernel_detail(const at::Tensor&) { return ""; }
#endif

}  // namespace nsa
