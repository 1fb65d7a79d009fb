#include "nsa/train/gradients/gradient_buckets.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace nsa::train {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The parameters of each bucket, in the order in which they are sent.
std::vector<Tensors> in_buckets(const Tensors& parameters, int64_t cap_bytes, int64_t last_bytes) {
  std::vector<Tensors> buckets(1);
  int64_t bytes = 0;
  for (auto parameter = parameters.rbegin(); parameter != parameters.rend(); ++parameter) {
    const int64_t full = buckets.size() == 1 ? last_bytes : cap_bytes;
    if (!buckets.back().empty() && bytes >= full) {
      buckets.emplace_back();
      bytes = 0;
    }
    buckets.back().push_back(*parameter);
    bytes += static_cast<int64_t>(parameter->nbytes());
  }
  for (Tensors& bucket : buckets) std::ranges::reverse(bucket);
  std::ranges::reverse(buckets);
  return buckets;
}

}  // namespace

GradientBuckets::GradientBuckets(const Tensors& parameters, int64_t cap_bytes, int64_t last_bytes,
                                 OnReady on_ready)
    : on_ready_(std::move(on_ready)) {
  for (const at::Tensor& parameter : parameters)
    TORCH_CHECK(parameter.scalar_type() == parameters.front().scalar_type() &&
                    parameter.device() == parameters.front().device(),
                "nsa::GradientBuckets: parameters must be of one type on one device, got ",
                parameters.front().toString(), " on ", parameters.front().device(), " and ",
                parameter.toString(), " on ", parameter.device());
  for (const Tensors& bucket : in_buckets(parameters, cap_bytes, last_bytes)) add_bucket(bucket);
  for (size_t i = 0; i < all_.size(); ++i) watch(i);
}

void GradientBuckets::add_bucket(const Tensors& parameters) {
  int64_t elements = 0;
  for (const at::Tensor& parameter : parameters) elements += parameter.numel();
  const at::Tensor whole = at::zeros({elements}, parameters.front().options().requires_grad(false));
  int64_t offset = 0;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor memory = whole.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    if (parameter.dim() == 2) places_->want(parameter, memory);
    all_.push_back({parameter, memory, buckets_.size()});
    offset += parameter.numel();
  }
  buckets_.push_back(whole);
  missing_.push_back(0);
}

GradientBuckets::~GradientBuckets() {
  for (const auto& [node, hook] : watched_) node->del_post_hook(hook);
}

void GradientBuckets::watch(size_t i) {
  auto node = torch::autograd::impl::grad_accumulator(all_[i].parameter);
  const uintptr_t hook =
      node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, i](const auto& outputs, const auto&) {
            arrived(i);
            return outputs;
          }));
  watched_.emplace_back(std::move(node), hook);
}

void GradientBuckets::begin_pass(bool first, bool last) {
  if (first) places_->free_all();
  in_pass_ = true;
  sends_ = last;
  next_ = 0;
  std::ranges::fill(missing_, 0);
  for (Place& place : all_) {
    place.filled = false;
    ++missing_[place.bucket];
  }
}

void GradientBuckets::arrived(size_t i) {
  if (!in_pass_) return;  // of somebody else's backward pass
  const at::NoGradGuard no_grad;
  Place& place = all_[i];
  at::Tensor& gradient = place.parameter.mutable_grad();
  if (gradient.data_ptr() != place.memory.data_ptr()) {
    place.memory.copy_(gradient);
    gradient = place.memory.detach();
  }
  if (std::exchange(place.filled, true)) return;
  --missing_[place.bucket];
  for (; sends_ && next_ < buckets_.size() && missing_[next_] == 0; ++next_)
    on_ready_({buckets_[next_], next_, next_ + 1 == buckets_.size()});
}

void GradientBuckets::end_pass() {
  in_pass_ = false;
  for (size_t i = 0; i < all_.size(); ++i)
    TORCH_CHECK(all_[i].filled, "nsa::GradientBuckets: parameter ", i, " of shape ",
                all_[i].parameter.sizes(), " must have a gradient, got none");
}

}  // namespace nsa::train
