#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "nsa/train/ranks/rank_group.h"

namespace nsa::train {

/// Means over two GPUs of one machine that read one another's memory (LibTorch's symmetric memory).
/// Each leaves half of its numbers where the other's copy engine fetches them: but for one pass to
/// leave and one to add them the multiprocessors stay with the backward pass, which NCCL's kernels
/// slow as long as they run (docs/performance.md). The bits are those of NCCL's mean.
class PeerSums {
 public:
  /// Why these ranks cannot; empty: they can. The same on all ranks, which all ask.
  static std::string obstacle(RankGroup& group);

  /// Takes twice `max_bytes` of memory, the most that a tensor has. Every call is collective, in
  /// the same order on both ranks; `group` outlives it.
  PeerSums(RankGroup& group, int64_t max_bytes);
  ~PeerSums();

  /// Enqueues on the current stream, the same in all calls: `whole`, contiguous, becomes the mean
  /// over the ranks. With `bf16` it travels as bf16. A kernel that waits for the other rank longer
  /// than ranks are waited for ends with a fault of the device.
  void average(const at::Tensor& whole, bool bf16);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nsa::train
