#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/ranks/rank_group.h"

namespace nsa::train {

/// The two collectives of sharded parameters, begun and not waited for. Every call is collective;
/// wait() of the result lets the current stream wait (a CPU: the thread).
class ShardCollectives {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// `ranks` and `log` outlive it. `bf16`: gradients travel as bf16.
  ShardCollectives(RankGroup& ranks, CollectiveLog& log, bool bf16);

  int64_t rank() const { return ranks_.rank(); }
  int64_t world() const { return ranks_.world(); }
  /// Type in which gradients of parameters of `type` travel.
  at::ScalarType gradient_type(at::ScalarType type) const;

  /// shard [n] of every rank, in their order -> whole [world * n]. `what` names it in the log.
  WorkPtr gather(at::Tensor whole, at::Tensor shard, const std::string& what) const;
  /// Means over the ranks of whole [world * n], of which this rank gets its part -> shard [n].
  /// `whole` is changed.
  WorkPtr average(at::Tensor whole, at::Tensor shard, const std::string& what) const;
  /// Copies rank 0's tensor to all, and waits.
  void broadcast(const at::Tensor& tensor) const;
  /// L2 norm of what all ranks have, from that of each one's part; a scalar on the device.
  at::Tensor norm_of_all(const at::Tensor& norm_here) const;

 private:
  RankGroup& ranks_;
  CollectiveLog& log_;
  bool bf16_;
};

}  // namespace nsa::train
