// What of a trainer depends on what its ranks divide among them.
#include "nsa/train/loop/trainer.h"

namespace nsa::train {

AdamW Trainer::make_optimizer() {
  AdamWOptions options{.weight_decay = options_.weight_decay, .clip_norm = options_.clip_norm};
  const auto parameters = parts_.model->parameters();
  if (sharding_ == Sharding::kOptimizer) {
    owners_ = std::make_unique<MomentOwners>(parameters, *parts_.ranks, *parts_.collectives);
    return {parameters, options, owners_->owned()};
  }
  if (sharding_ == Sharding::kNone) return {parameters, options};
  sharded_ = std::make_unique<ShardedParameters>(parts_.model, device_, *parts_.ranks,
                                                 options_.shard_group, options_.reducer,
                                                 *parts_.collectives);
  options.norm_of_all = [&all = sharded_->collectives()](const at::Tensor& norm_here) {
    return all.norm_of_all(norm_here);
  };
  std::vector<bool> owned;
  for (const at::Tensor& piece : sharded_->pieces()) owned.push_back(piece.numel() > 0);
  return {sharded_->pieces(), options, owned, sharded_->matrices()};
}

void Trainer::after_backward(bool last) {
  if (reducer_) reducer_->end_pass();
  if (sharded_) sharded_->end_micro_batch();
  if (sharded_ && last) sharded_->give_gradients();
}

AdamW::Moments Trainer::whole_moments(size_t i) const {
  const AdamW::Moments& here = optimizer_.moments(i);
  return owners_ ? owners_->whole_moments(i, here) : here;
}

ShardLayout::Piece Trainer::kept_piece(size_t i) const {
  if (sharded_) return sharded_->piece_place(i);
  return {0, 0, optimizer_.parameter(i).numel()};
}

}  // namespace nsa::train
