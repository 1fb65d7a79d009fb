#include "nsa/ops/rope/fused_rotate.h"

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

at::Tensor launch(const at::Tensor& x_in, const at::Tensor& positions, double base, bool inverse) {
  const c10::cuda::CUDAGuard guard(x_in.device());
  const at::Tensor x = addressable(x_in), where = positions.contiguous();
  const at::Tensor out = at::empty(x.sizes(), x.options());
  kernels::Rotate p;
  p.x = strided(x);
  p.out = out.mutable_data_ptr();
  p.positions = where.const_data_ptr<int64_t>();
  p.per_sequence = where.dim() == 2;
  p.inverse = inverse;
  p.batch = static_cast<int>(x.size(0));
  p.num_tokens = static_cast<int>(x.size(1));
  p.num_heads = static_cast<int>(x.size(2));
  p.head_dim = static_cast<int>(x.size(3));
  p.base = base;
  p.element = element_of(x);
  const cudaError_t status = kernels::rotate(p, c10::cuda::getCurrentCUDAStream(x.get_device()));
  check_launch(status, "rope");
  return out;
}

struct FusedRotate : torch::autograd::Function<FusedRotate> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& positions,
                            double base) {
    ctx->save_for_backward({positions});
    ctx->saved_data["base"] = base;
    return launch(x, positions, base, /*inverse=*/false);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::rope: double backward is not supported; detach the gradient first");
    return {launch(grads[0], ctx->get_saved_variables()[0], ctx->saved_data["base"].toDouble(),
                   /*inverse=*/true),
            {},
            {}};
  }
};

}  // namespace

bool rotates_by_kernel(const at::Tensor& x) {
  constexpr int64_t kMostColumns = 1024, kMostSequences = 65535;
  return x.dim() == 4 && x.is_cuda() && x.size(3) % 8 == 0 && x.size(3) <= kMostColumns &&
         x.size(0) <= kMostSequences && x.size(1) <= INT32_MAX && x.size(2) <= INT32_MAX &&
         token_kernels_run(x);
}

at::Tensor rotate_by_kernel(const at::Tensor& x, const at::Tensor& positions, double base) {
  return FusedRotate::apply(x, positions, base);
}
#else
bool rotates_by_kernel(const at::Tensor&) { return false; }

at::Tensor rotate_by_kernel(const at::Tensor&, const at::Tensor&, double) {
  TORCH_CHECK(false, "nsa::rope: this build has no CUDA code");
}
#endif

}  // namespace nsa
