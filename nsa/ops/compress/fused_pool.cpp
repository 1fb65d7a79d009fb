#include "nsa/ops/compress/fused_pool.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/backend/kernel_code.h"
#include "nsa/ops/common/kernel_problem.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/kernels/tokens/token_kernels.h"
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

/// What both passes take; `like` has batch, heads and head dim.
template <class Problem>
Problem problem_of(const Extent& extent, const at::Tensor& like) {
  Problem p;
  p.batch = static_cast<int>(like.size(0));
  p.num_tokens = static_cast<int>(extent.num_tokens);
  p.num_blocks = static_cast<int>(extent.num_blocks);
  p.block_size = static_cast<int>(extent.block_size);
  p.block_stride = static_cast<int>(extent.block_stride);
  p.element = element_of(like);
  return p;
}

at::Tensor pool(const at::Tensor& x_in, const Extent& extent) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor x = addressable(x_in);
  const at::Tensor out =
      at::empty({x.size(0), extent.num_blocks, x.size(2), x.size(3)}, x.options());
  auto p = problem_of<kernels::TokenSources>(extent, x);
  p.num_pools = 1;
  p.pool[0] = {strided(x), out.mutable_data_ptr(), static_cast<int>(x.size(2)),
               static_cast<int>(x.size(3))};
  check_launch(kernels::token_sources(p, c10::cuda::getCurrentCUDAStream(x.get_device())),
               "compress");
  return out;
}

at::Tensor unpool(const at::Tensor& d_blocks, const Extent& extent) {
  const c10::cuda::CUDAGuard guard(d_blocks.device());
  const at::Tensor d = d_blocks.contiguous();
  const at::Tensor out =
      at::empty({d.size(0), extent.num_tokens, d.size(2), d.size(3)}, d.options());
  auto p = problem_of<kernels::TokenGradients>(extent, d);
  p.count = 1;
  p.of[0].blocks = d.const_data_ptr();
  p.of[0].out = out.mutable_data_ptr();
  p.of[0].num_heads = static_cast<int>(d.size(2));
  p.of[0].head_dim = static_cast<int>(d.size(3));
  check_launch(kernels::token_gradients(p, c10::cuda::getCurrentCUDAStream(d.get_device())),
               "compress");
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
    return pool(x, extent);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::compress: double backward is not supported; detach the gradient first");
    const auto saved = [&](const char* name) { return ctx->saved_data[name].toInt(); };
    const Extent extent{saved("num_tokens"), saved("num_blocks"), saved("block_size"),
                        saved("block_stride")};
    return {unpool(grads[0], extent), {}, {}};
  }
};

}  // namespace

bool pools_by_kernel(const at::Tensor& x) {
  constexpr int64_t kMostSequences = 65535;
  return x.dim() == 4 && x.is_cuda() && x.size(3) % 8 == 0 && x.numel() / 8 <= INT32_MAX &&
         x.size(0) <= kMostSequences && x.size(1) <= INT32_MAX && x.size(2) <= INT32_MAX &&
         token_kernels_run(x);
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
