#include "nsa/train/gradients/gradient_reducer.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <cstdio>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>

#include "nsa/train/gradients/bucket_record.h"
#include "nsa/train/gradients/gradient_buckets.h"
#include "nsa/train/gradients/ready_queue.h"
#include "nsa/train/gradients/unbucketed_gradients.h"

namespace nsa::train {
/// What the sums of buckets need and leave.
struct BucketSums {
  BucketSums(RankGroup& ranks, bool bf16_, CollectiveLog& log_, c10::Device device)
      : group(ranks.group()),
        bf16(bf16_),
        averages(ranks.backend() == "nccl"),
        log(log_),
        record(device),
        queue(device) {}

  c10::intrusive_ptr<c10d::ProcessGroup> group;
  bool bf16;
  bool averages;  ///< the collective divides by the number of ranks on its way
  CollectiveLog& log;
  BucketRecord record;
  std::vector<GradientBuckets::Bucket> ready;  ///< and not sent yet
  std::vector<ReadyQueue::FuturePtr> sent;     ///< in this step so far
  GradientReducer::Cut cut;                    ///< of a step that is captured
  size_t count = 0;                            ///< buckets of a step, once one is known
  ReadyQueue queue;                            ///< last: its calls use the others
};

namespace {

constexpr int64_t kBytesOfMib = int64_t{1} << 20;
/// Nothing hides the sum of the last bucket. As much as the attention of a small model's first
/// layer and its embedding, so that the other gradients of that layer are sent beside its
/// attention.
constexpr int64_t kLastBucketBytes = 6 * kBytesOfMib;

using Bucket = GradientBuckets::Bucket;

std::string describe_bucket(size_t index, int64_t bytes, bool bf16) {
  char text[96];
  std::snprintf(text, sizeof text, "allreduce of bucket %zu (%.2f MiB%s)", index,
                static_cast<double>(bytes) / static_cast<double>(kBytesOfMib),
                bf16 ? " as bf16" : "");
  return text;
}

/// Enqueues the mean of a bucket over the ranks, in the bucket's place.
ReadyQueue::FuturePtr average(BucketSums& sums, const at::Tensor& whole, size_t index) {
  sums.log.begin(describe_bucket(index, static_cast<int64_t>(whole.nbytes()), sums.bf16));
  std::vector<at::Tensor> sent = {sums.bf16 ? whole.to(at::kBFloat16) : whole};
  c10d::AllreduceOptions options;
  if (sums.averages)
    options.reduceOp = c10d::ReduceOp::AVG;
  else
    sent.front().div_(sums.group->getSize());
  const auto sum = sums.group->allreduce(sent, options)->getFuture();
  return sum->then(
      [whole, index, &sums](c10::ivalue::Future& done) {
        const at::NoGradGuard no_grad;
        if (sums.bf16) whole.copy_(done.value().toTensorVector().front());
        sums.record.done(index);
        return c10::IValue(whole);
      },
      c10::TensorType::get());
}

/// Has a bucket averaged as soon as its gradients are there. The last two are enqueued early, so
/// that the host can go on to the update before the backward pass has ended.
ReadyQueue::FuturePtr send(BucketSums& sums, const Bucket& bucket) {
  if (bucket.last) sums.count = bucket.index + 1;
  sums.record.ready(bucket.index, static_cast<int64_t>(bucket.whole.nbytes()));
  return sums.queue.push([&sums, bucket] { return average(sums, bucket.whole, bucket.index); },
                         /*in_order=*/bucket.index + 2 >= sums.count);
}

/// Sends buckets; behind the last one the stream waits for all sums.
void send(BucketSums& sums, const std::vector<Bucket>& buckets) {
  for (const Bucket& bucket : buckets) sums.sent.push_back(send(sums, bucket));
  if (!buckets.back().last) return;
  for (const auto& sum : std::exchange(sums.sent, {})) sum->waitAndThrow();
}

/// What waits is sent; in a step that is captured at every launch, between this part and the next.
void send_ready(BucketSums& sums) {
  if (sums.ready.empty()) return;
  auto buckets = std::exchange(sums.ready, {});
  if (sums.cut)
    sums.cut([&sums, buckets = std::move(buckets)] { send(sums, buckets); });
  else
    send(sums, buckets);
}

}  // namespace

struct GradientReducer::Impl {
  Impl(const std::vector<at::Tensor>& parameters, RankGroup& ranks, const ReducerOptions& options,
       CollectiveLog& log_)
      : group(ranks),
        log(log_),
        loose(parameters),
        sums(ranks, options.bf16, log_, parameters.front().device()),
        buckets(loose.others(), options.bucket_mib * kBytesOfMib,
                std::min(options.bucket_mib * kBytesOfMib, kLastBucketBytes),
                [this](const Bucket& bucket) {
                  sums.ready.push_back(bucket);
                  if (bucket.last) train::send_ready(sums);
                }) {}
  RankGroup& group;
  CollectiveLog& log;
  UnbucketedGradients loose;
  BucketSums sums;
  GradientBuckets buckets;
  bool last = false;  ///< this micro-batch is its step's last
};

GradientReducer::GradientReducer(const std::vector<at::Tensor>& parameters, RankGroup& group,
                                 const ReducerOptions& options, CollectiveLog& log) {
  log.begin("broadcast of the parameters");
  c10d::verify_params_across_processes(group.group(), parameters, std::nullopt);
  group.broadcast(parameters, 0);
  log.end();
  impl_ = std::make_unique<Impl>(parameters, group, options, log);
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::begin_pass(bool first, bool last) {
  impl_->last = last;
  impl_->buckets.begin_pass(first, last);
}

c10::intrusive_ptr<GradientPlaces> GradientReducer::places() const {
  return impl_->buckets.places();
}

void GradientReducer::send_ready() { train::send_ready(impl_->sums); }

void GradientReducer::end_pass() {
  impl_->buckets.end_pass();
  if (impl_->last) impl_->loose.average(impl_->group, impl_->log);
}

void GradientReducer::become_captured(Cut cut) { impl_->sums.cut = std::move(cut); }

std::vector<int64_t> GradientReducer::bucket_bytes() const { return impl_->sums.record.bytes(); }

std::vector<BucketTimes> GradientReducer::bucket_times() const {
  return impl_->sums.record.times();
}

}  // namespace nsa::train
