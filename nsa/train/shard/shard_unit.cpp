#include "nsa/train/shard/shard_unit.h"

#include <ATen/ATen.h>

#include <utility>

namespace nsa::train {
namespace {

std::vector<int64_t> sizes_of(const std::vector<at::Tensor>& parameters) {
  std::vector<int64_t> sizes;
  for (const at::Tensor& parameter : parameters) sizes.push_back(parameter.numel());
  return sizes;
}

}  // namespace

ShardUnit::ShardUnit(std::string name, std::vector<at::Tensor> parameters, at::Device device,
                     const ShardCollectives& collectives)
    : name_(std::move(name)),
      parameters_(std::move(parameters)),
      collectives_(collectives),
      layout_(sizes_of(parameters_), collectives.world()),
      flat_(at::zeros({layout_.total()},
                      parameters_.front().options().device(device).requires_grad(false))) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> views = views_of(flat_.whole());
  for (size_t i = 0; i < parameters_.size(); ++i) views[i].copy_(parameters_[i]);
  collectives_.broadcast(flat_.whole());
  shard_ = flat_.whole().narrow(0, collectives.rank() * layout_.shard(), layout_.shard()).clone();
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_data(views[i]);
  flat_.give_back();
}

std::vector<at::Tensor> ShardUnit::views_of(const at::Tensor& whole) const {
  std::vector<at::Tensor> views;
  for (size_t i = 0; i < parameters_.size(); ++i)
    views.push_back(
        whole.narrow(0, layout_.offset(i), parameters_[i].numel()).view(parameters_[i].sizes()));
  return views;
}

void ShardUnit::begin_gather() {
  if (flat_.is_there()) return;
  flat_.take();
  gathering_ = collectives_.gather(flat_.whole(), shard_, name_);
}

void ShardUnit::gather() {
  begin_gather();
  if (gathering_) std::exchange(gathering_, nullptr)->wait();
}

void ShardUnit::free() {
  if (gathering_) std::exchange(gathering_, nullptr)->wait();
  flat_.give_back();
}

at::Tensor ShardUnit::piece_of(const at::Tensor& shard, size_t i) const {
  const ShardLayout::Piece piece = layout_.piece(i, collectives_.rank());
  return shard.narrow(0, piece.in_shard, piece.size);
}

void ShardUnit::begin_average() {
  const at::NoGradGuard no_grad;
  const auto type = collectives_.gradient_type(shard_.scalar_type());
  sent_ = at::empty({layout_.total()}, shard_.options().dtype(type));
  arriving_ = at::empty({layout_.shard()}, sent_.options());
  std::vector<at::Tensor> gradients;
  for (at::Tensor& parameter : parameters_)
    gradients.push_back(std::exchange(parameter.mutable_grad(), at::Tensor()));
  at::_foreach_copy_(views_of(sent_), gradients);
  averaging_ = collectives_.average(sent_, arriving_, name_);
}

void ShardUnit::finish_average() {
  if (!averaging_) return;
  const at::NoGradGuard no_grad;
  std::exchange(averaging_, nullptr)->wait();
  sent_ = at::Tensor();
  collectives_.average_replicas(arriving_, name_);
  const at::Tensor mean = std::exchange(arriving_, at::Tensor()).to(shard_.scalar_type());
  if (gradient_.defined())
    gradient_.add_(mean);
  else
    gradient_ = mean;
}

std::vector<at::Tensor> ShardUnit::take_gradients() {
  std::vector<at::Tensor> pieces;
  for (size_t i = 0; i < parameters_.size(); ++i) pieces.push_back(piece_of(gradient_, i));
  gradient_ = at::Tensor();
  return pieces;
}

}  // namespace nsa::train
