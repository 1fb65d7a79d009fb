#include "nsa/ops/linear/rounded_weights.h"

#include <ATen/ATen.h>

#include <utility>

namespace nsa {
namespace {

thread_local const RoundedWeights* innermost = nullptr;  // NOLINT: one slot a thread is the purpose

}  // namespace

RoundedWeights::RoundedWeights(const std::vector<at::Tensor>& weights, at::ScalarType type)
    : outer_(std::exchange(innermost, this)) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> taken, places;
  int64_t size = 0;
  for (const at::Tensor& weight : weights) {
    if (weight.dim() != 2 || !weight.is_contiguous()) continue;
    if (!taken.empty() && weight.options().dtype() != taken.front().options().dtype()) continue;
    offsets_[weight.unsafeGetTensorImpl()] = size;
    taken.push_back(weight);
    size += weight.numel();
  }
  if (taken.empty()) return;
  flat_ = at::empty({size}, taken.front().options().dtype(type).requires_grad(false));
  for (const at::Tensor& weight : taken)
    places.push_back(flat_.narrow(0, offsets_[weight.unsafeGetTensorImpl()], weight.numel())
                         .view(weight.sizes()));
  at::_foreach_copy_(places, taken);
}

RoundedWeights::~RoundedWeights() { innermost = outer_; }

at::Tensor RoundedWeights::rows(const std::vector<at::Tensor>& weights, at::ScalarType type) const {
  if (!flat_.defined() || flat_.scalar_type() != type) return {};
  int64_t first = -1, end = -1, height = 0;
  for (const at::Tensor& weight : weights) {
    const auto found = offsets_.find(weight.unsafeGetTensorImpl());
    if (found == offsets_.end() || (end >= 0 && found->second != end)) return {};
    if (first < 0) first = found->second;
    end = found->second + weight.numel();
    height += weight.size(0);
  }
  constexpr int64_t kAligned = 8;  // elements, 16 bytes
  if (first < 0 || first % kAligned != 0) return {};
  return flat_.narrow(0, first, end - first).view({height, weights.front().size(1)});
}

at::Tensor rounded_rows(const std::vector<at::Tensor>& weights, at::ScalarType type) {
  const at::Tensor found = innermost ? innermost->rows(weights, type) : at::Tensor();
  if (found.defined()) return found;
  return (weights.size() == 1 ? weights[0] : at::cat(weights)).to(type);
}

}  // namespace nsa
