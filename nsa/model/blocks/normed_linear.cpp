#include "nsa/model/blocks/normed_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/model/blocks/fused_norm.h"
#include "nsa/ops/linear/gradient_places.h"
#include "nsa/ops/linear/rounded_linear.h"
#include "nsa/ops/linear/transient_weights.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Outputs: the sum (x itself where nothing is
/// added) and y.
struct FusedNormedLinear : torch::autograd::Function<FusedNormedLinear> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::optional<at::Tensor>& added,
                               const at::Tensor& norm_weight, at::TensorList weights, double eps,
                               const char* range) {
    const at::Tensor wide = norm_weight.to(at::kFloat).contiguous();
    const auto [sum, normed, scale] =
        norm_by_kernel(x.contiguous(), added ? added->contiguous() : at::Tensor(), wide, eps);
    const at::Tensor rounded = rounded_rows(weights.vec(), x.scalar_type());
    std::vector<int64_t> heights;
    for (const at::Tensor& weight : weights) heights.push_back(weight.size(0));
    variable_list kept = {sum, wide, scale};
    for (const at::Tensor& rows : kept_rows(rounded, weights)) kept.push_back(rows);
    ctx->save_for_backward(kept);
    ctx->saved_data["adds"] = added.has_value();
    ctx->saved_data["norm_type"] = norm_weight.scalar_type();
    ctx->saved_data["heights"] = heights;
    ctx->saved_data["places"] = noted_places(weights);
    ctx->set_materialize_grads(false);
    const NvtxRange product(range);
    return {sum, at::linear(normed, rounded)};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::normed_linear: double backward is not supported; detach the gradient first");
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &sum = saved[0], &d_sum = grads[0];
    const at::Tensor rounded = rounded_rows({saved.begin() + 3, saved.end()}, sum.scalar_type());
    const bool adds = ctx->saved_data["adds"].toBool();
    const std::vector<int64_t> heights = ctx->saved_data["heights"].toIntVector();
    if (!grads[1].defined()) {
      variable_list result{d_sum, adds ? d_sum : at::Tensor()};
      result.resize(heights.size() + 5);
      return result;
    }
    const at::Tensor d_y = grads[1].reshape({-1, rounded.size(0)});
    // The gradient of the norm, then the norm.
    const at::Tensor normed = at::mm(d_y, rounded);
    const FusedNormGradients d =
        norm_backward_by_kernel(sum, saved[1], saved[2], normed,
                                d_sum.defined() ? d_sum.contiguous() : d_sum, /*again=*/true);
    variable_list result{d.x, adds ? d.x : at::Tensor(),
                         d.weight.to(ctx->saved_data["norm_type"].toScalarType())};
    for (at::Tensor& d_weight :
         weight_gradients(d_y, normed, at::kFloat, heights, ctx->saved_data["places"]))
      result.push_back(std::move(d_weight));
    result.resize(result.size() + 2);  // of eps and range
    return result;
  }
};

}  // namespace

NormedLinear normed_linear(const Residual& in, const at::Tensor& norm_weight, double eps,
                           const std::vector<at::Tensor>& weights, const char* range,
                           const std::function<void(const at::Tensor&)>& look) {
  if (!look && norms_by_kernel(in.x, in.added) && keeps_gradients_wide(in.x, weights)) {
    const auto added = in.added.defined() ? std::optional(in.added) : std::nullopt;
    const variable_list out =
        FusedNormedLinear::apply(in.x, added, norm_weight, at::TensorList(weights), eps, range);
    return {out[0], out[1]};
  }
  const NormedResidual normed = residual_norm(in, norm_weight, eps);
  if (look) look(normed.normed);
  const NvtxRange product(range);
  return {normed.sum, rounded_linear(normed.normed, weights)};
}

}  // namespace nsa
