#include "nsa/model/blocks/fused_norm.h"

#include <ATen/ATen.h>

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

kernels::ResidualNorm problem_of(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& scale) {
  kernels::ResidualNorm p;
  p.x = x.const_data_ptr();
  p.weight = weight.const_data_ptr<float>();
  p.scale = scale.mutable_data_ptr<float>();
  p.dim = static_cast<int>(x.size(-1));
  p.rows = x.numel() / x.size(-1);
  p.element = element_of(x);
  return p;
}

}  // namespace

bool norms_by_kernel(const at::Tensor& x, const at::Tensor& added) {
  constexpr int kVector = 8;
  const auto aligned = [](const at::Tensor& t) {
    return !t.defined() || reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0;
  };
  return x.numel() > 0 && x.size(-1) % kVector == 0 && x.size(-1) <= kernels::kMostNormed &&
         aligned(x) && aligned(added) &&
         (!added.defined() || (added.sizes() == x.sizes() && added.dtype() == x.dtype())) &&
         token_kernels_run(x);
}

FusedNorm norm_by_kernel(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight,
                         double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  FusedNorm r{x, at::empty(x.sizes(), x.options()),
              at::empty({x.numel() / x.size(-1)}, weight.options())};
  kernels::ResidualNorm p = problem_of(x, weight, r.scale);
  if (added.defined()) {
    r.sum = at::empty(x.sizes(), x.options());
    p.added = added.const_data_ptr();
    p.sum = r.sum.mutable_data_ptr();
  }
  p.out = r.out.mutable_data_ptr();
  p.eps = static_cast<float>(eps);
  check_launch(kernels::residual_norm_forward(p, c10::cuda::getCurrentCUDAStream(x.get_device())),
               "residual_norm");
  return r;
}

FusedNormGradients norm_backward_by_kernel(const at::Tensor& sum, const at::Tensor& weight,
                                           const at::Tensor& scale, const at::Tensor& d_out,
                                           const at::Tensor& d_sum, bool again) {
  const c10::cuda::CUDAGuard guard(sum.device());
  const at::Tensor d_x = at::empty(sum.sizes(), sum.options());
  kernels::ResidualNorm p = problem_of(sum, weight, scale);
  const at::Tensor parts =
      at::empty({kernels::residual_norm_parts(p.rows), p.dim}, weight.options());
  p.d_out = d_out.const_data_ptr();
  if (d_sum.defined()) p.d_sum = d_sum.const_data_ptr();
  if (again) p.out = d_out.mutable_data_ptr();
  p.d_x = d_x.mutable_data_ptr();
  p.d_weight = parts.mutable_data_ptr<float>();
  check_launch(
      kernels::residual_norm_backward(p, c10::cuda::getCurrentCUDAStream(sum.get_device())),
      "residual_norm");
  return {d_x, summed_parts(parts)};
}
#else
bool norms_by_kernel(const at::Tensor&, const at::Tensor&) { return false; }

FusedNorm norm_by_kernel(const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  TORCH_CHECK(false, "nsa::residual_norm: this build has no CUDA code");
}

FusedNormGradients norm_backward_by_kernel(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                           const at::Tensor&, const at::Tensor&, bool) {
  TORCH_CHECK(false, "nsa::residual_norm: this build has no CUDA code");
}
#endif

}  // namespace nsa
