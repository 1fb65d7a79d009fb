#include "nsa/model/blocks/residual_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nsa/model/blocks/fused_norm.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Outputs: the sum (x itself where nothing is added) and its norm. The gradient of the sum comes
/// through here in both cases, so that it is rounded once, together with that of the norm.
struct FusedResidualNorm : torch::autograd::Function<FusedResidualNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::optional<at::Tensor>& added, const at::Tensor& weight_in,
                               double eps) {
    const at::Tensor weight = weight_in.to(at::kFloat).contiguous();
    const auto [sum, out, scale] =
        norm_by_kernel(x.contiguous(), added ? added->contiguous() : at::Tensor(), weight, eps);
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
    const FusedNormGradients d =
        norm_backward_by_kernel(saved[0], saved[1], saved[2], d_out.contiguous(),
                                d_sum.defined() ? d_sum.contiguous() : d_sum, /*again=*/false);
    return result(d.x, d.weight.to(ctx->saved_data["weight_type"].toScalarType()));
  }
};

}  // namespace

NormedResidual residual_norm(const Residual& in, const at::Tensor& weight, double eps) {
  if (norms_by_kernel(in.x, in.added)) {
    const auto added = in.added.defined() ? std::optional(in.added) : std::nullopt;
    const variable_list out = FusedResidualNorm::apply(in.x, added, weight, eps);
    return {out[0], out[1]};
  }
  const at::Tensor sum = in.sum();
  return {sum, at::rms_norm(sum, {weight.size(0)}, weight.to(sum.scalar_type()), eps)};
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return residual_norm({x, {}}, weight, eps).normed;
}

}  // namespace nsa
