#include "nsa/train/shard/shard_collectives.h"

#include <ATen/ATen.h>

#include <cstdio>

#include "nsa/train/memory/mib.h"

namespace nsa::train {
namespace {

std::string describe(const char* call, const std::string& what, const at::Tensor& whole) {
  char size[48];
  std::snprintf(size, sizeof size, " (%.2f MiB%s)", static_cast<double>(whole.nbytes()) / kMib,
                whole.scalar_type() == at::kBFloat16 ? " as bf16" : "");
  return std::string(call) + " of " + what + size;
}

}  // namespace

ShardCollectives::ShardCollectives(RankGroup& ranks, CollectiveLog& log, int64_t size, bool bf16)
    : ranks_(ranks), log_(log), bf16_(bf16) {
  if (size == 0 || size == ranks.world()) return;
  TORCH_CHECK(size > 0 && ranks.world() % size == 0, "nsa::ShardCollectives: size must divide the ",
              ranks.world(), " ranks, got ", size);
  const int64_t group = ranks.rank() / size, index = ranks.rank() % size;
  std::vector<int64_t> members, replicas;
  for (int64_t i = 0; i < size; ++i) members.push_back(group * size + i);
  for (int64_t rank = index; rank < ranks.world(); rank += size) replicas.push_back(rank);
  log_.begin("meeting of shard group " + std::to_string(group));
  own_group_ = ranks.subgroup("shard group " + std::to_string(group), members);
  log_.begin("meeting of the replicas of part " + std::to_string(index));
  replicas_ = ranks.subgroup("replicas " + std::to_string(index), replicas);
  log_.end();
}

void ShardCollectives::leave() {
  if (own_group_) own_group_->leave();
  if (replicas_) replicas_->leave();
}

at::ScalarType ShardCollectives::gradient_type(at::ScalarType type) const {
  return bf16_ ? at::kBFloat16 : type;
}

ShardCollectives::WorkPtr ShardCollectives::gather(at::Tensor whole, at::Tensor shard,
                                                   const std::string& what) const {
  const at::NoGradGuard no_grad;
  log_.begin(describe("all-gather", what, whole));
  return group().group()->_allgather_base(whole, shard);
}

// NCCL divides on its way, as it does for whole gradients.
ShardCollectives::WorkPtr ShardCollectives::average(at::Tensor whole, at::Tensor shard,
                                                    const std::string& what) const {
  const at::NoGradGuard no_grad;
  log_.begin(describe("reduce-scatter", what, whole));
  c10d::ReduceScatterOptions options;
  if (ranks_.backend() == "nccl")
    options.reduceOp = c10d::ReduceOp::AVG;
  else
    whole.div_(world());
  return group().group()->_reduce_scatter_base(shard, whole, options);
}

void ShardCollectives::average_replicas(at::Tensor shard, const std::string& what) const {
  if (!replicas_) return;
  const at::NoGradGuard no_grad;
  log_.begin(describe("allreduce", what, shard));
  shard.div_(replicas_->world());
  replicas_->sum(std::move(shard));
}

void ShardCollectives::broadcast(const at::Tensor& tensor) const {
  log_.begin("broadcast of the parameters");
  ranks_.broadcast({tensor}, 0);
  log_.end();
}

at::Tensor ShardCollectives::norm_of_all(const at::Tensor& norm_here) const {
  log_.begin("allreduce of the gradient's norm");
  const at::Tensor squares = norm_here.to(at::kDouble).square().view({1});
  group().sum(squares);
  return squares.sqrt().to(norm_here.scalar_type()).squeeze();
}

}  // namespace nsa::train
