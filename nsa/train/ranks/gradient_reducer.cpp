#include "nsa/train/ranks/gradient_reducer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <cstdio>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "nsa/train/ranks/bucket_record.h"
#include "nsa/train/ranks/ready_queue.h"
#include "nsa/train/ranks/unbucketed_gradients.h"

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
  std::vector<ReadyQueue::FuturePtr> launched;  ///< by the step's graphs so far
  GradientReducer::Cut cut;                     ///< of a step that is captured
  size_t count = 0;                             ///< buckets of a step, once one is known
  ReadyQueue queue;                             ///< last: its calls use the others
};

namespace {

constexpr int64_t kBytesOfMib = int64_t{1} << 20;
/// The first bucket is small, so that sending begins early.
constexpr int64_t kFirstBucketBytes = kBytesOfMib;

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

struct Bucket {
  at::Tensor whole;
  size_t index;
  bool last;
};

/// Has a bucket averaged as soon as its gradients are there. The last two are enqueued early, so
/// that the host can go on to the update before the backward pass has ended.
ReadyQueue::FuturePtr send(BucketSums& sums, const Bucket& bucket) {
  if (bucket.last) sums.count = bucket.index + 1;
  sums.record.ready(bucket.index, static_cast<int64_t>(bucket.whole.nbytes()));
  return sums.queue.push([&sums, bucket] { return average(sums, bucket.whole, bucket.index); },
                         /*in_order=*/bucket.index + 2 >= sums.count);
}

/// The same between two launches of a step that was captured; behind the last bucket the stream
/// waits for all sums.
void send_between(BucketSums& sums, const Bucket& bucket) {
  sums.launched.push_back(send(sums, bucket));
  if (!bucket.last) return;
  for (const auto& sum : std::exchange(sums.launched, {})) sum->waitAndThrow();
}

/// While a step is captured nothing is sent, and nothing waits.
ReadyQueue::FuturePtr cut_here(BucketSums& sums, const Bucket& bucket) {
  sums.cut([&sums, bucket] { send_between(sums, bucket); });
  auto unsent = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
  unsent->markCompleted(bucket.whole);
  return unsent;
}

class AverageHook : public c10d::CppCommHookInterface<BucketSums*> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const Bucket ready{bucket.getBuffer(), bucket.getIndex(), bucket.isLast()};
    return state_->cut ? cut_here(*state_, ready) : send(*state_, ready);
  }
};

/// Identity whose backward runs before all others: in the first step of a static graph the
/// Reducer is to send its buckets when the whole pass is over.
struct StartOfBackward : torch::autograd::Function<StartOfBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& loss,
                            int64_t reducer) {
    context->saved_data["reducer"] = reducer;
    return loss.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* reducer = reinterpret_cast<c10d::Reducer*>(context->saved_data["reducer"].toInt());
    torch::autograd::Engine::get_default_engine().queue_callback(
        [reducer] { reducer->delay_all_reduce(); });
    return {gradients.front(), at::Tensor()};
  }
};

std::shared_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                            RankGroup& group, int64_t cap_bytes) {
  const int64_t first = std::min(kFirstBucketBytes, cap_bytes);
  const std::vector<bool> dense(parameters.size(), false);
  // Gradients become ready from the last parameter to the first; buckets are sent in that order.
  std::vector<at::Tensor> backwards(parameters.rbegin(), parameters.rend());
  std::vector<int64_t> indices(parameters.size());
  for (size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<int64_t>(parameters.size() - 1 - i);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      backwards, {static_cast<size_t>(first), static_cast<size_t>(cap_bytes)}, dense, indices);
  return std::make_shared<c10d::Reducer>(
      parameters, std::move(buckets), group.group(), dense, cap_bytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true,
      std::unordered_map<size_t, std::string>(), first,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<int64_t>());
}

}  // namespace

struct GradientReducer::Impl {
  Impl(const std::vector<at::Tensor>& parameters, RankGroup& ranks, bool bf16, CollectiveLog& log_)
      : group(ranks),
        log(log_),
        loose(parameters),
        sums(ranks, bf16, log_, parameters.front().device()) {}
  RankGroup& group;
  CollectiveLog& log;
  UnbucketedGradients loose;
  BucketSums sums;
  std::shared_ptr<c10d::Reducer> reducer;
  int64_t steps = 0;
  bool first_step = true;
};

GradientReducer::GradientReducer(const std::vector<at::Tensor>& parameters, RankGroup& group,
                                 const ReducerOptions& options, CollectiveLog& log)
    : impl_(std::make_unique<Impl>(parameters, group, options.bf16, log)) {
  log.begin("broadcast of the parameters");
  c10d::verify_params_across_processes(group.group(), parameters, std::nullopt);
  group.broadcast(parameters, 0);
  log.end();
  impl_->reducer = make_reducer(impl_->loose.others(), group, options.bucket_mib * kBytesOfMib);
  impl_->reducer->register_comm_hook(std::make_unique<AverageHook>(&impl_->sums));
  impl_->reducer->set_static_graph();
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::before_step() {
  impl_->reducer->prepare_for_forward();
  // With a static graph the first step counts gradients and the second sees their order. The
  // buckets of the third follow it: ranks agree on it.
  const bool agrees = impl_->steps++ == 2;
  if (agrees) impl_->log.begin("agreement on the order of buckets");
  impl_->reducer->rebuild_buckets();
  if (agrees) impl_->log.end();
}

at::Tensor GradientReducer::before_backward(const at::Tensor& loss, bool first, bool last) {
  // With a static graph the Reducer learns in the first step how often every gradient comes, and
  // takes it as ready when it has come that often: so all micro-batches are one pass to it.
  if (first) impl_->reducer->prepare_for_backward({});
  if (!last || !impl_->first_step) return loss;
  impl_->first_step = false;
  return StartOfBackward::apply(loss, reinterpret_cast<int64_t>(impl_->reducer.get()));
}

void GradientReducer::after_backward() { impl_->loose.average(impl_->group, impl_->log); }

void GradientReducer::become_captured(Cut cut) { impl_->sums.cut = std::move(cut); }

std::vector<int64_t> GradientReducer::bucket_bytes() const { return impl_->sums.record.bytes(); }

std::vector<BucketTimes> GradientReducer::bucket_times() const {
  return impl_->sums.record.times();
}

}  // namespace nsa::train
