#include "nsa/train/loop/trainer.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/model/document_packing.h"
#include "nsa/ops/linear/gradient_places.h"
#include "nsa/train/loop/gate_stats.h"
#include "nsa/train/memory/memory.h"

namespace nsa::train {

namespace {

constexpr const char* kSumOfLossAndStop = "allreduce of loss and stop";

/// Whether inputs, the first `inputs` bytes of each row, are two different ones.
bool have_unlike_inputs(std::span<const uint8_t> rows, int64_t row_bytes, int64_t inputs) {
  const auto is_other = [&](uint8_t token) { return token != rows.front(); };
  for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(row_bytes))
    if (std::ranges::any_of(rows.subspan(row, static_cast<size_t>(inputs)), is_other)) return true;
  return false;
}

}  // namespace

Trainer::Trainer(TrainerParts parts, const TrainOptions& options, int64_t seq_len,
                 at::Device device)
    : parts_(std::move(parts)),
      options_(options),
      seq_len_(seq_len),
      device_(device),
      answers_(parts_.tokens->answers_per_row()),
      sharding_(parts_.ranks ? sharding_of(options.shard) : Sharding::kNone),
      optimizer_(make_optimizer()) {
  prepare_graph();
  prepare_reducer();
}

Trainer::~Trainer() {
  if (reducer_) parts_.model->call_before_attention_backward({});
}

/// On the stream of the steps: gradients are accumulated where the reducer met their parameters.
void Trainer::prepare_reducer() {
  if (!parts_.ranks || sharded_) return;
  c10::OptionalStreamGuard stream;
  if (graph_) stream.reset_stream(graph_->follow());
  reducer_ = std::make_unique<GradientReducer>(
      parts_.model->gradient_order(), *parts_.ranks,
      parts_.reduce ? parts_.reduce(options_.reducer) : options_.reducer, *parts_.collectives);
  parts_.model->call_before_attention_backward([this] { reducer_->send_ready(); });
  if (graph_) at::accelerator::synchronizeDevice(device_.index());  // the parameters are there
}

void Trainer::prepare_graph() {
  if (options_.cuda_graph == "off") return;
  no_graph_ = run_obstacle(options_, parts_.model->activation_checkpointing, device_);
  if (sharded_ && no_graph_.empty()) no_graph_ = "with shard full, whose parameters come and go";
  if (options_.cuda_graph == "on") require_graph(no_graph_);
  if (no_graph_.empty())
    graph_ = std::make_unique<StepGraph>(
        device_, at::IntArrayRef{options_.accum, options_.batch, row_bytes()});
}

/// Before the step that would be captured: what ran so far may stand against it.
void Trainer::check_graph() {
  if (!graph_ || !graph_->due_next() || options_.cuda_graph == "on") return;
  no_graph_ = graph_obstacle(ran_);
  if (!no_graph_.empty()) graph_.reset();
}

void Trainer::finish() {
  if (graph_) graph_->release();
  if (sharded_) sharded_->leave();
}

std::vector<int64_t> Trainer::bucket_bytes() const {
  return reducer_ ? reducer_->bucket_bytes() : std::vector<int64_t>();
}

Communication Trainer::communication() const {
  return reducer_ ? communication_of(reducer_->bucket_times()) : Communication{};
}

void Trainer::set_position(int64_t steps, int64_t rows) {
  TORCH_CHECK(!loader_, "nsa::Trainer: set_position must come before the first step");
  steps_done_ = steps;
  rows_done_ = rows;
}

/// S inputs and, one place later, S targets; behind them the answers of a task.
int64_t Trainer::row_bytes() const { return (seq_len_ + 1) * (answers_ > 0 ? 2 : 1); }

BatchShape Trainer::batch_shape() const {
  return {.rows = options_.batch,
          .row_tokens = row_bytes(),
          .stride = options_.batch * num_row_groups(),
          .offset = options_.batch * row_group()};
}

void Trainer::start_loader() {
  if (loader_) return;
  const BatchShape shape = batch_shape();
  const LoaderOptions loader = parts_.load ? parts_.load(options_.loader) : options_.loader;
  loader_ = std::make_unique<BatchLoader>(*parts_.tokens, shape, loader, rows_done_ / shape.stride);
}

LoaderTelemetry Trainer::loader_telemetry() const {
  return loader_ ? loader_->telemetry() : LoaderTelemetry{};
}

/// rows: int64 [B, row_bytes()] on the device.
Trainer::Batch Trainer::batch_of(const at::Tensor& rows) const {
  Batch batch{rows.narrow(1, 0, seq_len_ + 1), {}};
  if (answers_ > 0) batch.answers = rows.slice(1, seq_len_ + 1);
  return batch;
}

Trainer::Batch Trainer::to_device(const std::vector<uint8_t>& bytes) const {
  at::Tensor rows = at::empty({options_.batch, row_bytes()}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), rows.data_ptr<uint8_t>());
  rows = rows.to(device_);
  Batch batch = batch_of(rows.to(at::kLong));
  if (parts_.context != nullptr && !options_.packing) batch.attention = parts_.context->attention();
  if (options_.packing) {
    const at::Tensor documents = document_starts(bytes, seq_len_ + 1);
    batch.attention =
        parts_.context ? parts_.context->attention(documents) : within_documents(documents);
    batch.targets = parts_.context ? count_targets(bytes, seq_len_ + 1, parts_.context->shard())
                                   : nsa::count_targets(bytes, seq_len_ + 1);
  }
  return batch;
}

Trainer::Batch Trainer::load() {
  const NvtxRange range("train.load");
  const std::vector<uint8_t> bytes = loader_->next();
  inputs_differ_ = have_unlike_inputs(bytes, row_bytes(), seq_len_);
  return to_device(bytes);
}

/// A batch that was handed out before, read from its source again.
Trainer::Batch Trainer::load_again(int64_t first_row) const {
  LoaderOptions plain{.threads = 0, .warmup_batches = 0};
  const BatchShape shape = batch_shape();
  return to_device(BatchLoader(*parts_.tokens, shape, plain, first_row / shape.stride).next());
}

at::Tensor Trainer::inputs_of(const Batch& batch) const {
  return parts_.context ? parts_.context->inputs(batch.tokens) : batch.tokens.slice(1, 0, -1);
}

at::Tensor Trainer::loss_of(const Batch& batch, const at::Tensor& logits) const {
  if (parts_.context != nullptr)
    return parts_.context->mean_loss(parts_.loss, logits, batch.tokens, options_.packing);
  if (!batch.answers.defined()) return parts_.loss(logits, batch.tokens);
  return masked_next_token_loss(logits, batch.answers, batch.answers.slice(1, 1).eq(0));
}

at::Tensor Trainer::forward(const Batch& batch, DecoderImpl::Outputs& out) {
  const NvtxRange range("train.forward");
  out = parts_.model->forward(inputs_of(batch), /*probe=*/{}, batch.attention);
  const NvtxRange loss_range("train.loss");
  const at::Tensor loss = loss_of(batch, out.logits);
  return batch.share.defined() ? loss * batch.share.to(loss.scalar_type())
                               : loss / static_cast<double>(options_.accum);
}

at::Tensor Trainer::micro_batch(const Batch& batch, int64_t micro, const OnStage& end_stage,
                                StepTensors& computed) {
  const bool first = micro == 1, last = micro == options_.accum;
  if (reducer_) reducer_->begin_pass(first, last);
  const GradientPlaces::Scope places(reducer_ ? reducer_->places() : nullptr);
  DecoderImpl::Outputs out;
  const at::Tensor loss = forward(batch, out);
  out.logits
      .reset();  // with a large vocabulary they are the largest tensor, and nothing reads them
  end_stage(Stage::kForward);
  {
    const NvtxRange range("train.backward");
    loss.backward();
    after_backward(last);
  }
  end_stage(Stage::kBackward);
  computed.gates = std::move(out.gates);
  for (const RunRecordPtr& record : out.records) merge_rows(computed.ran, record->rows());
  return loss.detach();
}

StepTensors Trainer::compute(const std::function<Batch(int64_t)>& batch, const OnStage& end_stage,
                             const at::Tensor& targets) {
  StepTensors out;
  out.targets = targets;
  for (int64_t micro = 1; micro <= options_.accum; ++micro) {
    const at::Tensor loss = micro_batch(batch(micro), micro, end_stage, out);
    out.loss = out.loss.defined() ? out.loss + loss : loss;
  }
  const NvtxRange range("train.optimizer");
  out.norm = optimizer_.update(targets.defined() ? targets.eq(0).squeeze() : at::Tensor());
  end_stage(Stage::kOptimizer);
  out.host_values = pack_host_values(out);
  return out;
}

/// Targets of a step over all ranks, fp64 [1] on the device.
at::Tensor Trainer::sum_targets(const std::vector<Batch>& batches) {
  double here = 0;
  for (const Batch& batch : batches) here += static_cast<double>(batch.targets);
  const at::Tensor all = at::full({1}, here, at::TensorOptions(device_).dtype(at::kDouble));
  if (parts_.ranks) {
    parts_.collectives->begin("allreduce of the number of targets");
    parts_.ranks->sum(all);
  }
  return all;
}

/// Micro-batches of documents have unlike numbers of targets: all are loaded first, and each loss
/// counts for its part of the step's targets. The reducer averages over ranks, hence their number.
StepTensors Trainer::compute_packed(const OnStage& end_stage) {
  std::vector<Batch> batches;
  for (int64_t i = 0; i < options_.accum; ++i) {
    batches.push_back(load());
    end_stage(Stage::kLoad);
  }
  const at::Tensor targets = sum_targets(batches);
  const at::Tensor whole = targets.clamp_min(1).squeeze();
  for (Batch& batch : batches)
    batch.share = at::scalar_tensor(batch.targets * world(), at::kDouble) / whole;
  const auto next = [&](int64_t micro) { return batches[static_cast<size_t>(micro - 1)]; };
  return compute(next, end_stage, targets);
}

StepTensors Trainer::compute_loaded(const OnStage& end_stage) {
  if (options_.packing) return compute_packed(end_stage);
  const auto next = [&](int64_t) {
    Batch batch = load();
    end_stage(Stage::kLoad);
    return batch;
  };
  return compute(next, end_stage);
}

StepTensors Trainer::compute_by_graph(const OnStage& end_stage) {
  const auto in_place = [&](int64_t micro) {
    return batch_of(graph_->rows().select(0, micro - 1));
  };
  for (int64_t micro = 1; micro <= options_.accum; ++micro) {
    const Batch loaded = load(), place = in_place(micro);
    place.tokens.copy_(loaded.tokens);
    if (answers_ > 0) place.answers.copy_(loaded.answers);
  }
  end_stage(Stage::kLoad);
  const auto ignore_stage = [](Stage) {};
  if (!graph_->captured()) {
    if (reducer_)
      reducer_->become_captured(
          [this](std::function<void()> between) { graph_->cut(std::move(between)); });
    graph_->capture([&] { return compute(in_place, ignore_stage); }, /*before=*/ran_);
  }
  const NvtxRange range("train.graph");
  StepTensors out = graph_->replay();
  if (parts_.collectives)
    parts_.collectives->begin(kSumOfLossAndStop);  // the last one that it launched
  end_stage(Stage::kGraph);
  return out;
}

/// What the host reads of a step, fp64 [3 + kNumGateStats]: mean loss of all ranks, how many of
/// them want to stop, norm of the gradients, gates; with packing the number of targets behind them.
at::Tensor Trainer::pack_host_values(const StepTensors& computed) {
  const at::NoGradGuard no_grad;
  const at::Tensor loss = computed.loss.to(at::kDouble).view({1}) / static_cast<double>(world());
  const at::Tensor of_ranks = at::cat({loss, stop_});
  if (parts_.ranks) {
    parts_.collectives->begin(kSumOfLossAndStop);
    parts_.ranks->sum(of_ranks);
  }
  const at::Tensor gates = computed.gates.empty() ? at::zeros({kNumGateStats}, loss.options())
                                                  : reduce_gates(computed.gates);
  std::vector<at::Tensor> values = {of_ranks, computed.norm.to(at::kDouble).view({1}), gates};
  if (computed.targets.defined()) values.push_back(computed.targets);
  return at::cat(values);
}

/// Before a step: whether this rank wants to stop behind it, where the ranks add it up.
void Trainer::ask_stop() {
  const bool wanted = parts_.stop_wanted && parts_.stop_wanted();
  if (!stop_.defined()) stop_ = at::zeros({1}, at::TensorOptions(device_).dtype(at::kDouble));
  if (wanted != std::exchange(stop_asked_, wanted)) stop_.fill_(wanted ? 1.0 : 0.0);
}

/// Inputs of a step, of all ranks.
int64_t Trainer::positions() const { return rows_of_step() * seq_len_; }

int64_t Trainer::rows_of_step() const { return options_.batch * options_.accum * num_row_groups(); }

StepRecord Trainer::read_back(const StepTensors& computed) {
  const NvtxRange range("train.read_back");
  const at::Tensor values = computed.host_values.cpu();
  if (parts_.collectives) parts_.collectives->end();
  const double* v = values.data_ptr<double>();
  StepRecord record;
  record.step = steps_done_;
  record.rows = rows_done_;
  record.targets = computed.targets.defined() ? static_cast<int64_t>(v[3 + kNumGateStats])
                   : answers_ > 0             ? rows_of_step() * answers_
                                              : positions();
  record.loss = record.has_targets() ? v[0] : std::numeric_limits<double>::quiet_NaN();
  stop_agreed_ = v[1] > 0;
  record.grad_norm = v[2];
  record.gate = gate_stats(v + 3);
  if (!inputs_differ_) record.gate.layer_spread_min = std::numeric_limits<double>::infinity();
  record.lr = optimizer_.applied_learning_rate();
  return record;
}

void Trainer::take_times(const StageClock& clock, StepRecord& record) const {
  const bool one_launch = clock.stage_ms(Stage::kGraph) > 0;
  const auto part = [&](Stage stage) {
    return one_launch ? std::numeric_limits<double>::quiet_NaN() : clock.stage_ms(stage);
  };
  record.load_ms = clock.stage_ms(Stage::kLoad);
  record.forward_ms = part(Stage::kForward);
  record.backward_ms = part(Stage::kBackward);
  record.optimizer_ms = part(Stage::kOptimizer);
  record.collective_ms = clock.stage_ms(Stage::kCollective);
  record.step_ms = clock.total_ms();
  record.tok_s = static_cast<double>(positions()) / (record.step_ms / 1000.0);
}

StepRecord Trainer::step(bool wait_each, const OnStage& on_stage) {
  start_loader();
  reset_peak_memory(device_);
  if (parts_.collectives) parts_.collectives->at_step(steps_done_ + 1);
  check_graph();
  c10::OptionalStreamGuard stream;
  if (graph_) stream.reset_stream(graph_->begin_step());
  StageClock clock(device_, wait_each);
  const OnStage end_stage = [&](Stage stage) {
    clock.end_stage(stage);
    if (on_stage) on_stage(stage);
  };
  clock.start();
  const NvtxRange step_range("train.step");
  optimizer_.set_learning_rate(parts_.learning_rate(steps_done_));
  ask_stop();
  const StepTensors computed =
      graph_ && graph_->due() ? compute_by_graph(end_stage) : compute_loaded(end_stage);
  merge_rows(ran_, computed.ran);
  rows_done_ += options_.accum * batch_shape().stride;
  if (owners_) owners_->share_parameters();
  if (parts_.ranks) end_stage(Stage::kCollective);
  ++steps_done_;
  StepRecord record = read_back(computed);
  clock.finish();
  take_times(clock, record);
  record.mem_mib = used_memory_mib(device_);
  // A CPU's peak cannot be set back, so there a step stands for itself by what it leaves.
  record.peak_mib = device_.is_cpu() ? record.mem_mib : peak_memory_mib(device_);
  if (graph_) record.peak_mib = std::max(record.peak_mib, graph_->peak_mib());
  return record;
}

std::string Trainer::locate_non_finite() {
  // A rank that found it would leave the others waiting in an exchange of keys.
  if (parts_.context != nullptr) return "not located, as ranks divide rows (context_ranks)";
  std::optional<ShardedParameters::Whole> whole;
  if (sharded_) whole.emplace(*sharded_);
  for (int64_t micro = options_.accum; micro > 0; --micro) {
    const Batch batch = load_again(rows_done_ - micro * batch_shape().stride);
    const std::string found =
        train::locate_non_finite(parts_.model, batch.tokens, parts_.loss, batch.attention);
    if (!found.empty()) return found;
  }
  return "not reproduced: repeating the step gave finite values everywhere";
}

}  // namespace nsa::train
