#include "nsa/train/adamw.h"

#include <ATen/ATen.h>

namespace nsa::train {

AdamW::AdamW(const std::vector<at::Tensor>& parameters, const AdamWOptions& options)
    : options_(options) {
  TORCH_CHECK(!parameters.empty(), "nsa::AdamW: parameters must not be empty");
  Group matrices, vectors;
  matrices.weight_decay = options.weight_decay;
  for (const at::Tensor& parameter : parameters) {
    Group& group = parameter.dim() >= 2 ? matrices : vectors;
    group.parameters.push_back(parameter);
    group.first_moments.push_back(at::zeros_like(parameter));
    group.second_moments.push_back(at::zeros_like(parameter));
  }
  for (Group* group : {&matrices, &vectors})
    if (!group->parameters.empty()) groups_.push_back(std::move(*group));
  step_count_ = at::zeros({}, parameters.front().options().dtype(at::kFloat).requires_grad(false));
}

void AdamW::take_gradients() {
  for (Group& group : groups_) {
    group.gradients.clear();
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      at::Tensor& slot = group.parameters[i].mutable_grad();
      TORCH_CHECK(slot.defined(), "nsa::AdamW: parameter ", i, " of shape ",
                  group.parameters[i].sizes(), " must have a gradient, got none");
      group.gradients.push_back(std::move(slot));
      slot = at::Tensor();
    }
  }
}

at::Tensor AdamW::gradient_norm() const {
  std::vector<at::Tensor> norms;
  for (const Group& group : groups_)
    for (const at::Tensor& norm : at::_foreach_norm(group.gradients)) norms.push_back(norm);
  return at::linalg_vector_norm(at::stack(norms));
}

at::Tensor AdamW::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  take_gradients();
  const at::Tensor norm = gradient_norm();
  const at::Tensor skip = at::isfinite(norm).logical_not().to(at::kFloat);
  // The kernel divides gradients by `divisor`: clipping without a pass of its own.
  std::optional<at::Tensor> divisor;
  if (options_.clip_norm > 0) divisor = (norm / options_.clip_norm).clamp_min(1.0).to(at::kFloat);
  step_count_ += 1 - skip;
  for (Group& group : groups_) {
    const std::vector<at::Tensor> counts(group.parameters.size(), step_count_);
    at::_fused_adamw_(group.parameters, group.gradients, group.first_moments, group.second_moments,
                      {}, counts, learning_rate, options_.beta1, options_.beta2, group.weight_decay,
                      options_.eps,
                      /*amsgrad=*/false, /*maximize=*/false, divisor, skip);
    group.gradients.clear();
  }
  applied_learning_rate_ = learning_rate;
  return norm;
}

}  // namespace nsa::train
