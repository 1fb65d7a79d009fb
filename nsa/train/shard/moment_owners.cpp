#include "nsa/train/shard/moment_owners.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace nsa::train {
namespace {

std::vector<int64_t> spread(const std::vector<at::Tensor>& parameters, int64_t world) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return parameters[a].numel() > parameters[b].numel();
  });
  std::vector<int64_t> owner(parameters.size()), load(static_cast<size_t>(world));
  for (const size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    owner[i] = least - load.begin();
    *least += parameters[i].numel();
  }
  return owner;
}

}  // namespace

MomentOwners::MomentOwners(std::vector<at::Tensor> parameters, RankGroup& ranks, CollectiveLog& log)
    : parameters_(std::move(parameters)),
      ranks_(ranks),
      log_(log),
      owner_(spread(parameters_, ranks.world())) {}

std::vector<bool> MomentOwners::owned() const {
  std::vector<bool> owned;
  for (const int64_t each : owner_) owned.push_back(each == ranks_.rank());
  return owned;
}

void MomentOwners::share_parameters() const {
  log_.begin("broadcast of updated parameters");
  for (int64_t root = 0; root < ranks_.world(); ++root) {
    std::vector<at::Tensor> theirs;
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (owner_[i] == root) theirs.push_back(parameters_[i]);
    if (!theirs.empty()) ranks_.broadcast(theirs, root);
  }
}

AdamW::Moments MomentOwners::whole_moments(size_t i, AdamW::Moments here) const {
  const at::NoGradGuard no_grad;
  if (!here.first.defined())
    here = {at::empty_like(parameters_[i]), at::empty_like(parameters_[i])};
  ranks_.broadcast({here.first, here.second}, owner_[i]);
  return here;
}

}  // namespace nsa::train
