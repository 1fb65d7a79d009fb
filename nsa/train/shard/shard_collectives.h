#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/ranks/rank_group.h"

namespace nsa::train {

/// The collectives of sharded parameters, begun and not waited for. Every call is collective;
/// wait() of the result lets the current stream wait (a CPU: the thread). Ranks 0 .. size - 1 are
/// one group, the next ones another: each has all parameters, divided among its ranks, and those
/// with one index in their groups, replicas, have the same part (FSDP's hybrid sharding,
/// arXiv:2304.11277, section 3.2.2).
class ShardCollectives {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// `ranks` and `log` outlive it. `size`: of a group, a divisor of the number of ranks; 0: all are
  /// one. `bf16`: gradients travel as bf16.
  ShardCollectives(RankGroup& ranks, CollectiveLog& log, int64_t size, bool bf16);

  int64_t rank() const { return group().rank(); }    ///< of this one in its group
  int64_t world() const { return group().world(); }  ///< ranks of a group
  bool is_replicated() const { return replicas_ != nullptr; }
  /// This rank's is the group that writes checkpoints.
  bool is_first_group() const { return !replicas_ || replicas_->rank() == 0; }
  /// Ends the groups, when all ranks have come so far; no call may follow.
  void leave();
  /// Type in which gradients of parameters of `type` travel.
  at::ScalarType gradient_type(at::ScalarType type) const;

  /// shard [n] of every rank of the group, in their order -> whole [world * n]. `what` names it in
  /// the log.
  WorkPtr gather(at::Tensor whole, at::Tensor shard, const std::string& what) const;
  /// Means over the group of whole [world * n], of which this rank gets its part -> shard [n].
  /// `whole` is changed.
  WorkPtr average(at::Tensor whole, at::Tensor shard, const std::string& what) const;
  /// Means over the replicas, in place: of means over groups, those over all ranks. Waits.
  void average_replicas(at::Tensor shard, const std::string& what) const;
  /// Copies rank 0's tensor to all ranks, and waits.
  void broadcast(const at::Tensor& tensor) const;
  /// L2 norm of what the ranks of a group have, from that of each one's part; a scalar on the
  /// device.
  at::Tensor norm_of_all(const at::Tensor& norm_here) const;

 private:
  RankGroup& group() const { return own_group_ ? *own_group_ : ranks_; }

  RankGroup& ranks_;
  CollectiveLog& log_;
  bool bf16_;
  std::unique_ptr<RankGroup> own_group_, replicas_;  ///< null: all ranks are one group
};

}  // namespace nsa::train
