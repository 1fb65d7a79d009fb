#include "nsa/ops/rope/cos_sin_table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <tuple>

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/ops/rope/rope.h"
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

at::Tensor make_table(int64_t num_tokens, int64_t dim, double base, at::Device device) {
  const at::Tensor positions = at::arange(num_tokens, at::TensorOptions(at::kLong).device(device));
  return at::view_as_real(rope_table(positions, dim, base, at::kFloat));
}

}  // namespace

at::Tensor cos_sin_table(int64_t num_tokens, int64_t dim, double base, at::Device device) {
  constexpr uint64_t kLeastTokens = 2048;
  using Key = std::tuple<c10::DeviceIndex, int64_t, double>;
  static std::mutex mutex;
  // Earlier tables stay: work that was given out may still read them. They double, so all together
  // are less than twice the last. Never destroyed: the device may be gone before.
  static auto& tables = *new std::map<Key, std::vector<at::Tensor>>;
  const c10::cuda::CUDAGuard guard(device);
  const std::lock_guard lock(mutex);
  std::vector<at::Tensor>& made = tables[{device.index(), dim, base}];
  if (!made.empty() && made.back().size(0) >= num_tokens) return made.back();
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None)
    return make_table(num_tokens, dim, base, device);
  const auto size = std::bit_ceil(std::max(static_cast<uint64_t>(num_tokens), kLeastTokens));
  made.push_back(make_table(static_cast<int64_t>(size), dim, base, device));
  c10::cuda::getCurrentCUDAStream(device.index()).synchronize();  // other streams read it, too
  return made.back();
}
#else
at::Tensor cos_sin_table(int64_t, int64_t, double, at::Device) {
  TORCH_CHECK(false, "nsa::cos_sin_table: this build has no CUDA code");
}
#endif

}  // namespace nsa
