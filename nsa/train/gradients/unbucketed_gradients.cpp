#include "nsa/train/gradients/unbucketed_gradients.h"

#include <ATen/ATen.h>

namespace nsa::train {

/// Nothing hides their sum: what is larger stays in a bucket.
constexpr size_t kMostBytes = 16384;

UnbucketedGradients::UnbucketedGradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters)
    (parameter.nbytes() > kMostBytes ? others_ : taken_).push_back(parameter);
  if (others_.empty()) taken_.swap(others_);
}

void UnbucketedGradients::average(RankGroup& group, CollectiveLog& log) const {
  if (taken_.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  std::vector<int64_t> sizes;
  for (const at::Tensor& parameter : taken_) {
    TORCH_CHECK(parameter.grad().defined(), "nsa::UnbucketedGradients: a parameter of shape ",
                parameter.sizes(), " must have a gradient, got none");
    flat.push_back(parameter.grad().reshape({-1}));
    sizes.push_back(parameter.numel());
  }
  const at::Tensor all = at::cat(flat).div_(group.world());
  log.begin("allreduce of " + std::to_string(taken_.size()) + " loose gradients");
  group.sum(all);
  const std::vector<at::Tensor> means = all.split_with_sizes(sizes);
  for (size_t i = 0; i < taken_.size(); ++i)
    taken_[i].mutable_grad() = means[i].view(taken_[i].sizes());
}

}  // namespace nsa::train
