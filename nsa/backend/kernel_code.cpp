#include "nsa/backend/kernel_code.h"

#include <ATen/ATen.h>

#include <atomic>
#include <stdexcept>

#include "nsa/ops/common/kernel_problem.h"

#ifdef NSA_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif

namespace nsa {
namespace {

std::atomic<bool>& sm80_wanted() {
  static std::atomic<bool> wanted{false};
  return wanted;
}

/// Why no kernel can run, and what to do about it; empty where one can.
std::string missing_kernels(at::Device device) {
#ifdef NSA_WITH_CUDA
  return device.is_cuda() ? "" : "device " + device.str() + " runs none; use device cuda";
#else
  static_cast<void>(device);
  return "this build has none; use one with CUDA code";
#endif
}

}  // namespace

void want_kernels(const std::string& code, at::Device device) {
  if (code != "auto" && code != "sm80")
    throw std::invalid_argument("NSA_KERNELS must be auto or sm80, got '" + code + "'");
  const std::string missing = code == "auto" ? "" : missing_kernels(device);
  if (!missing.empty())
    throw std::invalid_argument("NSA_KERNELS=" + code + " asks for kernels, " + missing +
                                ", or unset it");
  sm80_wanted() = code == "sm80";
}

std::string sm80_obstacle(size_t shared_bytes_of_block) {
  constexpr size_t kMost = 160 * 1024;  // of the largest kernel, the selected backward pass
  if (shared_bytes_of_block >= kMost) return "";
  return "the kernels take up to 160 KB of shared memory a block, this card has " +
         std::to_string(shared_bytes_of_block / 1024);
}

#ifdef NSA_WITH_CUDA
kernels::Code tile_kernel_code(const at::Tensor& q) {
  const int major = at::cuda::getDeviceProperties(q.get_device())->major;
  return sm80_wanted() || major == 8 ? kernels::Code::kSm80 : kernels::Code::kSm90;
}

std::string tile_kernel_obstacle(const at::Tensor& q) {
  const std::string any = kernel_obstacle(q, /*least_major=*/8, /*only=*/false);
  if (!any.empty()) return any;
  if (tile_kernel_code(q) == kernels::Code::kSm90)
    return kernel_obstacle(q, /*least_major=*/9, /*only=*/true);
  return sm80_obstacle(at::cuda::getDeviceProperties(q.get_device())->sharedMemPerBlockOptin);
}

std::string tile_kernel_detail(const at::Tensor& q) {
  const bool runs = kernel_obstacle(q, /*least_major=*/8, /*only=*/false).empty();
  return runs && tile_kernel_code(q) == kernels::Code::kSm80 ? "sm_80" : "";
}
#else
std::string tile_kernel_obstacle(const at::Tensor& q) { return kernel_obstacle(q, 0, false); }
std::string tile_kernel_detail(const at::Tensor&) { return ""; }
#endif

}  // namespace nsa
