#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "nsa/train/ranks/rank_place.h"

namespace nsa::train {

/// The ranks of a run as one group: NCCL between GPUs, Gloo between CPUs. Every call is collective:
/// all ranks make it, in the same order.
class RankGroup {
 public:
  /// Meets the other ranks. Throws InputError naming host, port and remedy when they do not come
  /// within `timeout` or the port is in use; c10::Error for faults of a backend.
  RankGroup(const RankPlace& place, at::Device device, std::chrono::milliseconds timeout);
  ~RankGroup();

  /// Some of these ranks as a group of their own, in the order of `members`, which has this one.
  /// `name` tells it apart from other groups that these ranks are in. All members call it.
  std::unique_ptr<RankGroup> subgroup(const std::string& name,
                                      const std::vector<int64_t>& members) const;

  /// A connection of its own to the store where the ranks met, for texts of a thread of its own.
  c10::intrusive_ptr<c10d::Store> connect() const { return store_->clone(); }

  /// Whether a thread of this process waits in a call of this group or one made from it.
  bool waits() const { return *waiting_ > 0; }

  int64_t rank() const { return place_.rank; }
  int64_t world() const { return place_.world; }
  at::Device device() const { return device_; }
  const std::string& backend() const { return backend_; }  ///< nccl | gloo
  const c10::intrusive_ptr<c10d::ProcessGroup>& group() const { return group_; }

  /// Copies the tensors of rank `root` to all, in place.
  void broadcast(const std::vector<at::Tensor>& tensors, int64_t root);
  /// Sums a tensor over the ranks, in place.
  void sum(at::Tensor tensor);
  /// The text of every rank, in their order, on all of them.
  std::vector<std::string> gather(const std::string& text);
  void barrier();
  /// Ends the group when all ranks have come so far; no call may follow. Without it the backend
  /// complains at the end of the process, which is right where a run was cut off.
  void leave();

 private:
  RankGroup(const RankPlace& place, at::Device device, std::chrono::milliseconds timeout,
            c10::intrusive_ptr<c10d::Store> store);
  at::Tensor sum_on_host(const at::Tensor& tensor);
  RankPlace place_;
  at::Device device_;
  std::chrono::milliseconds timeout_;
  std::string backend_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::shared_ptr<std::atomic<int>> waiting_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace nsa::train
