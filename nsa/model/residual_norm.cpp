#include "nsa/model/residual_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/core/device_problem.h"

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "nsa/device/token_kernels.h"
#endif

namespace nsa {
namespace {

#ifdef NSA_WITH_CUDA
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

device::ResidualNorm problem_of(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& scale) {
  device::ResidualNorm p;
  p.x = x.const_data_ptr();
  p.weight = weight.const_data_ptr<float>();
  p.scale = scale.mutable_data_ptr<float>();
  p.dim = static_cast<int>(x.size(-1));
  p.rows = x.numel() / x.size(-1);
  p.element = element_of(x);
  return p;
}

struct Normed {
  at::Tensor sum, out, scale;
};

/// x, added (or undefined) and fp32 weight contiguous; the sum is x where nothing is added.
Normed run_forward(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight,
                   double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  Normed r{x, at::empty(x.sizes(), x.options()),
           at::empty({x.numel() / x.size(-1)}, weight.options())};
  device::ResidualNorm p = problem_of(x, weight, r.scale);
  if (added.defined()) {
    r.sum = at::empty(x.sizes(), x.options());
    p.added = added.const_data_ptr();
    p.sum = r.sum.mutable_data_ptr();
  }
  p.out = r.out.mutable_data_ptr();
  p.eps = static_cast<float>(eps);
  check_launch(device::residual_norm_forward(p, c10::cuda::getCurrentCUDAStream(x.get_device())),
               "residual_norm");
  return r;
}

/// The norm of a sum once more.
Recipe recipe_of(const at::Tensor& sum, const at::Tensor& weight, double eps) {
  return [sum = sum.detach(), weight = weight.detach(), eps] {
    return run_forward(sum, {}, weight.to(at::kFloat).contiguous(), eps).out;
  };
}

/// Outputs: the sum (x itself where nothing is added) and its norm. The gradient of the sum comes
/// through here in both cases, so that it is rounded once, together with that of the norm.
struct FusedResidualNorm : torch::autograd::Function<FusedResidualNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::optional<at::Tensor>& added, const at::Tensor& weight_in,
                               double eps) {
    const at::Tensor weight = weight_in.to(at::kFloat).contiguous();
    const auto [sum, out, scale] =
        run_forward(x.contiguous(), added ? added->contiguous() : at::Tensor(), weight, eps);
    ctx->save_for_backward({sum, weight, scale});
    ctx->saved_data["adds"] = added.has_value();
    ctx->saved_data["weight_type"] = weight_in.scalar_type();
    ctx->set_materialize_grads(false);
    return {sum, out};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::residual_norm: double backward is not supported; detach the gradient first");
    const variable_list saved = ctx->get_saved_variables();
    const bool adds = ctx->saved_data["adds"].toBool();
    const at::Tensor d_sum = grads[0], d_out = grads[1];
    const auto result = [&](const at::Tensor& d_x, const at::Tensor& d_weight) {
      return variable_list{d_x, adds ? d_x : at::Tensor(), d_weight, {}};
    };
    if (!d_out.defined()) return result(d_sum, {});
    const at::Tensor &sum = saved[0], &weight = saved[1];
    const c10::cuda::CUDAGuard guard(sum.device());
    const at::Tensor d_out_rows = d_out.contiguous(),
                     d_sum_rows = d_sum.defined() ? d_sum.contiguous() : d_sum;
    const at::Tensor d_x = at::empty(sum.sizes(), sum.options());
    device::ResidualNorm p = problem_of(sum, weight, saved[2]);
    const at::Tensor parts =
        at::empty({device::residual_norm_parts(p.rows), p.dim}, weight.options());
    p.d_out = d_out_rows.const_data_ptr();
    if (d_sum.defined()) p.d_sum = d_sum_rows.const_data_ptr();
    p.d_x = d_x.mutable_data_ptr();
    p.d_weight = parts.mutable_data_ptr<float>();
    check_launch(
        device::residual_norm_backward(p, c10::cuda::getCurrentCUDAStream(sum.get_device())),
        "residual_norm");
    return result(d_x, parts.sum(0).to(ctx->saved_data["weight_type"].toScalarType()));
  }
};

bool has_kernel(const at::Tensor& x, const at::Tensor& added) {
  constexpr int kLeastMajor = 8, kVector = 8;
  const auto aligned = [](const at::Tensor& t) {
    return !t.defined() || reinterpret_cast<uintptr_t>(t.const_data_ptr()) % 16 == 0;
  };
  return x.numel() > 0 && x.size(-1) % kVector == 0 && x.size(-1) <= device::kMostNormed &&
         aligned(x) && aligned(added) &&
         (!added.defined() || (added.sizes() == x.sizes() && added.dtype() == x.dtype())) &&
         kernel_obstacle(x, kLeastMajor, /*only=*/false).empty();
}
#endif

}  // namespace

NormedResidual residual_norm(const Residual& in, const at::Tensor& weight, double eps) {
#ifdef NSA_WITH_CUDA
  if (has_kernel(in.x, in.added)) {
    const auto added = in.added.defined() ? std::optional(in.added) : std::nullopt;
    const variable_list out = FusedResidualNorm::apply(in.x, added, weight, eps);
    return {out[0], out[1], recipe_of(out[0], weight, eps)};
  }
#endif
  const at::Tensor sum = in.sum();
  return {sum, at::rms_norm(sum, {weight.size(0)}, weight.to(sum.scalar_type()), eps)};
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return residual_norm({x, {}}, weight, eps).normed;
}

}  // namespace nsa
