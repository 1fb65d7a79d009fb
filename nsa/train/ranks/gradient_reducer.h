#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/ranks/communication.h"
#include "nsa/train/ranks/rank_group.h"
#include "nsa/train/ranks/reducer_options.h"

namespace nsa::train {

/// Averages gradients over the ranks while the backward pass runs: c10d's Reducer with a static
/// graph and gradients as views of its buckets.
class GradientReducer {
 public:
  /// Copies rank 0's parameters to all. `group` and `log` outlive the reducer.
  GradientReducer(const std::vector<at::Tensor>& parameters, RankGroup& group,
                  const ReducerOptions& options, CollectiveLog& log);
  ~GradientReducer();

  /// Before the forward pass of a step's first micro-batch.
  void before_step();
  /// The loss to call backward() on, in every micro-batch. Gradients add up on their own rank; each
  /// is sent when the `last` one has made its part of it. Every step has equally many.
  at::Tensor before_backward(const at::Tensor& loss, bool first, bool last);
  /// After backward() of the last micro-batch, while the parameters have their gradients; those
  /// that travel in no bucket are averaged here.
  void after_backward();

  /// Ends what is captured so far; at every launch `between` runs on the host behind that part.
  using Cut = std::function<void(std::function<void()> between)>;
  /// The next step is captured, and launches of it follow. It is cut where a bucket is ready, as
  /// sums in a graph would wait beside its kernels and slow them (ready_queue.h).
  void become_captured(Cut cut);

  /// Bytes of every bucket as it was sent last, in the order they are sent. Empty before the first
  /// step.
  std::vector<int64_t> bucket_bytes() const;
  /// When they were ready and summed, in the same order. The device must have finished the step.
  std::vector<BucketTimes> bucket_times() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nsa::train
