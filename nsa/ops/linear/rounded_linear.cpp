#include "nsa/ops/linear/rounded_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "nsa/ops/linear/gradient_places.h"
#include "nsa/ops/linear/transient_weights.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct RoundedLinear : torch::autograd::Function<RoundedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList weights) {
    const at::Tensor rounded = rounded_rows(weights.vec(), x.scalar_type());
    std::vector<int64_t> heights;
    for (const at::Tensor& weight : weights) heights.push_back(weight.size(0));
    ctx->saved_data["heights"] = heights;
    ctx->saved_data["sizes"] = x.sizes().vec();
    variable_list kept = kept_rows(rounded, weights);
    kept.push_back(x);
    ctx->save_for_backward(kept);
    ctx->saved_data["places"] = noted_places(weights);
    ctx->saved_data["type"] = weights.front().scalar_type();
    return at::linear(x, rounded);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::rounded_linear: double backward is not supported; detach the gradient first");
    variable_list kept = ctx->get_saved_variables();
    const at::Tensor x = std::move(kept.back());
    kept.pop_back();
    const at::Tensor rounded = rounded_rows(kept, x.scalar_type());
    const at::Tensor d_out = grads[0].reshape({-1, rounded.size(0)});
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    variable_list result{ctx->needs_input_grad(0) ? at::mm(d_out, rounded).view(sizes)
                                                  : at::Tensor()};
    const at::Tensor rows_in = x.reshape({-1, x.size(-1)});
    for (at::Tensor& d_weight :
         weight_gradients(d_out, rows_in, ctx->saved_data["type"].toScalarType(),
                          ctx->saved_data["heights"].toIntVector(), ctx->saved_data["places"]))
      result.push_back(std::move(d_weight));
    return result;
  }
};

}  // namespace

bool keeps_gradients_wide(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  return x.is_cuda() && x.numel() > 0 &&
         (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) &&
         std::all_of(weights.begin(), weights.end(), [](const at::Tensor& weight) {
           return weight.scalar_type() == at::kFloat && weight.is_cuda();
         });
}

at::Tensor rounded_linear(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  if (keeps_gradients_wide(x, weights) || TransientWeights::here())
    return RoundedLinear::apply(x, at::TensorList(weights));
  return at::linear(x, (weights.size() == 1 ? weights[0] : at::cat(weights)).to(x.scalar_type()));
}

}  // namespace nsa
