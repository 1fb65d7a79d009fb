#include "nsa/compress/fused_pool.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/core/device_problem.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/device/token_kernels.h"
#endif

namespace nsa {

#ifdef NSA_WITH_CUDA
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Tokens and blocks of one pooling.
struct Extent {
  int64_t num_tokens, num_blocks, block_size, block_stride;
};

at::Tensor launch(const at::Tensor& x_in, const Extent& extent, bool backward) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor x = addressable(x_in);
  const int64_t rows = backward ? extent.num_tokens : extent.num_blocks;
  const at::Tensor out = at::empty({x.size(0), rows, x.size(2), x.size(3)}, x.options());
  device::PoolMean p;
  p.x = strided(x);
  p.out = out.mutable_data_ptr();
  p.batch = static_cast<int>(x.size(0));
  p.num_tokens = static_cast<int>(extent.num_tokens);
  p.num_blocks = static_cast<int>(extent.num_blocks);
  p.num_heads = static_cast<int>(x.size(2));
  p.head_dim = static_cast<int>(x.size(3));
  p.block_size = static_cast<int>(extent.block_size);
  p.block_stride = static_cast<int>(extent.block_stride);
  p.element = element_of(x);
  const auto run = backward ? device::pool_mean_backward : device::pool_mean_forward;
  const cudaError_t status = run(p, c10::cuda::getCurrentCUDAStream(x.get_device()));
  TORCH_CHECK(status == cudaSuccess, "nsa::compress: launch failed: ", cudaGetErrorString(status));
  return out;
}

struct FusedPool : torch::autograd::Function<FusedPool> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, int64_t block_size,
                            int64_t block_stride) {
    const Extent extent{x.size(1), (x.size(1) - block_size) / block_stride + 1, block_size,
                        block_stride};
    ctx->saved_data["num_tokens"] = extent.num_tokens;
    ctx->saved_data["num_blocks"] = extent.num_blocks;
    ctx->saved_data["block_size"] = block_size;
    ctx->saved_data["block_stride"] = block_stride;
    return launch(x, extent, /*backward=*/false);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::compress: double backward is not supported; detach the gradient first");
    const auto saved = [&](const char* name) { return ctx->saved_data[name].toInt(); };
    const Extent extent{saved("num_tokens"), saved("num_blocks"), saved("block_size"),
                        saved("block_stride")};
    return {launch(grads[0], extent, /*backward=*/true), {}, {}};
  }
};

}  // namespace

bool pools_by_kernel(const at::Tensor& x) {
  constexpr int kLeastMajor = 8;
  return x.dim() == 4 && x.is_cuda() && x.size(3) % 8 == 0 && x.numel() / 8 <= INT32_MAX &&
         x.size(0) <= INT32_MAX && x.size(1) <= INT32_MAX && x.size(2) <= INT32_MAX &&
         kernel_obstacle(x, kLeastMajor, /*only=*/false).empty();
}

at::Tensor pool_mean_by_kernel(const at::Tensor& x, int64_t block_size, int64_t block_stride) {
  return FusedPool::apply(x, block_size, block_stride);
}
#else
bool pools_by_kernel(const at::Tensor&) { return false; }

at::Tensor pool_mean_by_kernel(const at::Tensor&, int64_t, int64_t) {
  TORCH_CHECK(false, "nsa::compress: this build has no CUDA code");
}
#endif

}  // namespace nsa
