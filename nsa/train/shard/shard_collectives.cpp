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

ShardCollectives::ShardCollectives(RankGroup& ranks, CollectiveLog& log, bool bf16)
    : ranks_(ranks), log_(log), bf16_(bf16) {}

at::ScalarType ShardCollectives::gradient_type(at::ScalarType type) const {
  return bf16_ ? at::kBFloat16 : type;
}

ShardCollectives::WorkPtr ShardCollectives::gather(at::Tensor whole, at::Tensor shard,
                                                   const std::string& what) const {
  const at::NoGradGuard no_grad;
  log_.begin(describe("all-gather", what, whole));
  return ranks_.group()->_allgather_base(whole, shard);
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
  return ranks_.group()->_reduce_scatter_base(shard, whole, options);
}

void ShardCollectives::broadcast(const at::Tensor& tensor) const {
  log_.begin("broadcast of the parameters");
  ranks_.broadcast({tensor}, 0);
  log_.end();
}

at::Tensor ShardCollectives::norm_of_all(const at::Tensor& norm_here) const {
  log_.begin("allreduce of the gradient's norm");
  const at::Tensor squares = norm_here.to(at::kDouble).square().view({1});
  ranks_.sum(squares);
  return squares.sqrt().to(norm_here.scalar_type()).squeeze();
}

}  // namespace nsa::train
