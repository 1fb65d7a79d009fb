#include "nsa/train/loop/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace nsa::train {

AdamW::AdamW(const std::vector<at::Tensor>& parameters, const AdamWOptions& options,
             const std::vector<bool>& owned, const std::vector<bool>& matrices)
    : options_(options), parameters_(parameters), moments_(parameters.size()) {
  TORCH_CHECK(!parameters.empty(), "nsa::AdamW: parameters must not be empty");
  TORCH_CHECK(owned.empty() || owned.size() == parameters.size(), "nsa::AdamW: owned must have ",
              parameters.size(), " entries, got ", owned.size());
  TORCH_CHECK(matrices.empty() || matrices.size() == parameters.size(),
              "nsa::AdamW: matrices must have ", parameters.size(), " entries, got ",
              matrices.size());
  Group decaying, others;
  decaying.weight_decay = options.weight_decay;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const bool decays = matrices.empty() ? parameters[i].dim() >= 2 : matrices[i];
    add(decays ? decaying : others, i, owned.empty() || owned[i]);
  }
  for (Group* group : {&decaying, &others})
    if (!group->members.empty()) groups_.push_back(std::move(*group));
  const auto scalar = parameters.front().options().requires_grad(false);
  update_count_ = at::zeros({}, scalar.dtype(at::kFloat));
  learning_rate_ = at::zeros({}, scalar.dtype(scalar.device().is_cpu() ? at::kDouble : at::kFloat));
}

void AdamW::add(Group& group, size_t i, bool owned) {
  group.members.push_back(i);
  if (!owned) return;
  moments_[i] = {at::zeros_like(parameters_[i]), at::zeros_like(parameters_[i])};
  group.parameters.push_back(parameters_[i]);
  group.first_moments.push_back(moments_[i].first);
  group.second_moments.push_back(moments_[i].second);
}

/// All gradients that are not empty, in the order of the groups; the groups keep those they update
/// with.
std::vector<at::Tensor> AdamW::take_gradients() {
  std::vector<at::Tensor> all;
  for (Group& group : groups_) {
    for (const size_t i : group.members) {
      at::Tensor& slot = parameters_[i].mutable_grad();
      TORCH_CHECK(slot.defined(), "nsa::AdamW: parameter ", i, " of shape ", parameters_[i].sizes(),
                  " must have a gradient, got none");
      if (moments_[i].first.defined()) group.gradients.push_back(slot);
      if (slot.numel() > 0) all.push_back(std::move(slot));
      slot = at::Tensor();
    }
  }
  return all;
}

at::Tensor AdamW::gradient_norm(const std::vector<at::Tensor>& gradients) const {
  const at::Tensor here = gradients.empty()
                              ? at::zeros({}, learning_rate_.options().dtype(at::kFloat))
                              : at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
  return options_.norm_of_all ? options_.norm_of_all(here) : here;
}

at::Tensor AdamW::step(double learning_rate) {
  set_learning_rate(learning_rate);
  return update();
}

void AdamW::set_learning_rate(double learning_rate) {
  learning_rate_.fill_(learning_rate);
  applied_learning_rate_ = learning_rate;
}

at::Tensor AdamW::update(const at::Tensor& idle) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm = gradient_norm(take_gradients());
  at::Tensor skipped = at::isfinite(norm).logical_not();
  if (idle.defined()) skipped = skipped.logical_or(idle);
  const at::Tensor skip = skipped.to(at::kFloat);
  // The kernel divides gradients by `divisor`: clipping without a pass of its own.
  std::optional<at::Tensor> divisor;
  if (options_.clip_norm > 0) divisor = (norm / options_.clip_norm).clamp_min(1.0).to(at::kFloat);
  update_count_ += 1 - skip;
  for (Group& group : groups_) {
    const std::vector<at::Tensor> counts(group.parameters.size(), update_count_);
    if (!group.parameters.empty())
      at::_fused_adamw_(group.parameters, group.gradients, group.first_moments,
                        group.second_moments, {}, counts, learning_rate_, options_.beta1,
                        options_.beta2, group.weight_decay, options_.eps,
                        /*amsgrad=*/false, /*maximize=*/false, divisor, skip);
    group.gradients.clear();
  }
  return norm;
}

}  // namespace nsa::train
