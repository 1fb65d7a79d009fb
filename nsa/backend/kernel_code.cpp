#include "nsa/backend/kernel_code.h"

#include <ATen/ATen.h>

#include <atomic>
#include <stdexcept>

#include "nsa/backend/card_facts.h"

namespace nsa {
namespace {

std::atomic<bool>& sm80_wanted() {
  static std::atomic<bool> wanted{false};
  return wanted;
}

/// Why no kernel can run, and what to do about it; empty where one can.
std::string missing_kernels(at::Device device) {
  if (!card_facts(at::kCPU).build_has_kernels) return "this build has none; use one with CUDA code";
  return device.is_cuda() ? "" : "device " + device.str() + " runs none; use device cuda";
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

KernelChoice choose_kernel(const at::Tensor& q, KernelCall call) {
  call.sixteen_bits = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return choose_kernel(call, card_facts(q.device()), sm80_wanted() ? "sm80" : "auto");
}

bool token_kernels_run(const at::Tensor& x) {
  return choose_kernel(x, {.family = KernelFamily::kTokens}).runs();
}

kernels::Code launched_code(KernelCode code) {
  TORCH_INTERNAL_ASSERT(code != KernelCode::kNone);
  return code == KernelCode::kSm90 ? kernels::Code::kSm90 : kernels::Code::kSm80;
}

}  // namespace nsa
