#include "nsa/train/gradient_reducer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <cstdio>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "nsa/train/bucket_record.h"
#include "nsa/train/loose_gradients.h"

namespace nsa::train {
namespace {

constexpr int64_t kBytesOfMib = int64_t{1} << 20;
/// The first bucket is small, so that sending begins early.
constexpr int64_t kFirstBucketBytes = kBytesOfMib;

struct HookState {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  bool bf16 = false;
  bool sum_averages = false;  ///< the collective divides by the number of ranks on its way
  CollectiveLog* log = nullptr;
  BucketRecord* record = nullptr;
};

std::string describe_bucket(size_t index, int64_t bytes, bool bf16) {
  char text[96];
  std::snprintf(text, sizeof text, "allreduce of bucket %zu (%.2f MiB%s)", index,
                static_cast<double>(bytes) / static_cast<double>(kBytesOfMib),
                bf16 ? " as bf16" : "");
  return text;
}

/// Sends a bucket for its mean over the ranks, and says so.
class AverageHook : public c10d::CppCommHookInterface<HookState> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const at::Tensor whole = bucket.getBuffer();
    const auto bytes = static_cast<int64_t>(whole.nbytes());
    state_.log->begin(describe_bucket(bucket.getIndex(), bytes, state_.bf16));
    state_.record->ready(bucket.getIndex(), bytes);
    std::vector<at::Tensor> sent = {state_.bf16 ? whole.to(at::kBFloat16) : whole};
    c10d::AllreduceOptions options;
    if (state_.sum_averages)
      options.reduceOp = c10d::ReduceOp::AVG;
    else
      sent.front().div_(state_.group->getSize());
    const auto sum = state_.group->allreduce(sent, options)->getFuture();
    return sum->then(
        [whole, bf16 = state_.bf16, record = state_.record,
         index = bucket.getIndex()](c10::ivalue::Future& done) {
          if (bf16) whole.copy_(done.value().toTensorVector().front());
          record->done(index);
          return c10::IValue(whole);
        },
        c10::TensorType::get());
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
  Impl(const std::vector<at::Tensor>& parameters, RankGroup& ranks)
      : group(ranks), loose(parameters), record(parameters.front().device()) {}
  RankGroup& group;
  LooseGradients loose;
  BucketRecord record;
  std::shared_ptr<c10d::Reducer> reducer;
  CollectiveLog* log = nullptr;
  int64_t steps = 0;
  bool first_step = true;
};

GradientReducer::GradientReducer(const std::vector<at::Tensor>& parameters, RankGroup& group,
                                 const ReducerOptions& options, CollectiveLog& log)
    : impl_(std::make_unique<Impl>(parameters, group)) {
  log.begin("broadcast of the parameters");
  c10d::verify_params_across_processes(group.group(), parameters, std::nullopt);
  group.broadcast(parameters, 0);
  log.end();
  impl_->reducer = make_reducer(impl_->loose.others(), group, options.bucket_mib * kBytesOfMib);
  impl_->reducer->register_comm_hook(std::make_unique<AverageHook>(
      HookState{group.group(), options.bf16, group.backend() == "nccl", &log, &impl_->record}));
  impl_->reducer->set_static_graph();
  impl_->log = &log;
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::before_step() {
  impl_->reducer->prepare_for_forward();
  // The buckets of the second step follow the order in which gradients came: ranks agree on it.
  const bool agrees = impl_->steps++ == 1;
  if (agrees) impl_->log->begin("agreement on the order of buckets");
  impl_->reducer->rebuild_buckets();
  if (agrees) impl_->log->end();
}

at::Tensor GradientReducer::before_backward(const at::Tensor& loss, bool first, bool last) {
  // With a static graph the Reducer learns in the first step how often every gradient comes, and
  // takes it as ready when it has come that often: so all micro-batches are one pass to it.
  if (first) impl_->reducer->prepare_for_backward({});
  if (!last || !impl_->first_step) return loss;
  impl_->first_step = false;
  return StartOfBackward::apply(loss, reinterpret_cast<int64_t>(impl_->reducer.get()));
}

void GradientReducer::after_backward() { impl_->loose.average(impl_->group, *impl_->log); }

std::vector<int64_t> GradientReducer::bucket_bytes() const { return impl_->record.bytes(); }

std::vector<BucketTimes> GradientReducer::bucket_times() const { return impl_->record.times(); }

}  // namespace nsa::train
