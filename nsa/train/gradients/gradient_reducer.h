#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "nsa/ops/linear/gradient_places.h"
#include "nsa/train/gradients/communication.h"
#include "nsa/train/gradients/reducer_options.h"
#include "nsa/train/ranks/collective_log.h"
#include "nsa/train/ranks/rank_group.h"

namespace nsa::train {

/// Averages gradients over the ranks while the backward pass runs, a bucket at a time.
class GradientReducer {
 public:
  /// Copies rank 0's parameters to all. `parameters` in the order of GradientBuckets. `group` and
  /// `log` outlive the reducer.
  GradientReducer(const std::vector<at::Tensor>& parameters, RankGroup& group,
                  const ReducerOptions& options, CollectiveLog& log);
  ~GradientReducer();

  /// Before the forward pass of a micro-batch. Gradients add up on their own rank; each is sent
  /// when the `last` one of a step has made its part of it.
  void begin_pass(bool first, bool last);
  /// For the forward pass: where the gradients of matrices are wanted, in the buckets.
  c10::intrusive_ptr<GradientPlaces> places() const;
  /// Sends the buckets that are ready: called in the backward pass where a sum beside it costs
  /// least, before attention (matrix products take 1.2 to 1.6 times as long beside one, attention
  /// 1.1 times: docs/performance.md). The last bucket does not wait for a call.
  void send_ready();
  /// After backward() of a micro-batch; behind the last one of a step parameters have the mean
  /// gradients, also those that travel in no bucket. Throws c10::Error where one has none.
  void end_pass();

  /// Ends what is captured so far; at every launch `between` runs on the host behind that part.
  using Cut = std::function<void(std::function<void()> between)>;
  /// The next step is captured, and launches of it follow. It is cut where buckets are sent, as
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
