#include "nsa/train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nsa/core/nvtx_range.h"
#include "nsa/train/gate_stats.h"
#include "nsa/train/memory.h"

namespace nsa::train {

Trainer::Trainer(TrainerParts parts, const TrainOptions& options, int64_t seq_len,
                 at::Device device)
    : parts_(std::move(parts)),
      options_(options),
      seq_len_(seq_len),
      device_(device),
      optimizer_(parts_.model->parameters(),
                 {.weight_decay = options.weight_decay, .clip_norm = options.clip_norm}) {}

void Trainer::set_position(int64_t steps, int64_t rows) {
  TORCH_CHECK(!loader_, "nsa::Trainer: set_position must come before the first step");
  steps_done_ = steps;
  rows_done_ = rows;
}

BatchShape Trainer::batch_shape() const {
  return {.rows = options_.batch,
          .row_tokens = seq_len_ + 1,  // S inputs and, one place later, S targets
          .stride = options_.batch * parts_.world,
          .offset = options_.batch * parts_.rank};
}

void Trainer::start_loader() {
  if (loader_) return;
  const BatchShape shape = batch_shape();
  loader_ = std::make_unique<BatchLoader>(*parts_.tokens, shape, options_.loader,
                                          rows_done_ / shape.stride);
}

LoaderTelemetry Trainer::loader_telemetry() const {
  return loader_ ? loader_->telemetry() : LoaderTelemetry{};
}

at::Tensor Trainer::to_device(const std::vector<uint8_t>& bytes) const {
  at::Tensor rows = at::empty({options_.batch, seq_len_ + 1}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), rows.data_ptr<uint8_t>());
  return rows.to(device_).to(at::kLong);
}

at::Tensor Trainer::load() {
  const NvtxRange range("train.load");
  return to_device(loader_->next());
}

/// A batch that was handed out before, read from its source again.
at::Tensor Trainer::load_again(int64_t first_row) const {
  LoaderOptions plain{.threads = 0, .warmup_batches = 0};
  const BatchShape shape = batch_shape();
  return to_device(BatchLoader(*parts_.tokens, shape, plain, first_row / shape.stride).next());
}

at::Tensor Trainer::forward(const at::Tensor& tokens, DecoderImpl::Outputs& out) {
  const NvtxRange range("train.forward");
  out = parts_.model->forward(tokens.slice(1, 0, -1));
  const NvtxRange loss_range("train.loss");
  return parts_.loss(out.logits, tokens) / static_cast<double>(options_.accum);
}

at::Tensor Trainer::forward_backward(StageClock& clock, const OnStage& on_stage,
                                     std::vector<at::Tensor>& gates) {
  const auto end_stage = [&](Stage stage) {
    clock.end_stage(stage);
    if (on_stage) on_stage(stage);
  };
  at::Tensor loss_sum;
  for (int64_t micro = 0; micro < options_.accum; ++micro) {
    const at::Tensor tokens = load();
    end_stage(Stage::kLoad);
    DecoderImpl::Outputs out;
    const at::Tensor loss = forward(tokens, out);
    end_stage(Stage::kForward);
    {
      const NvtxRange range("train.backward");
      loss.backward();
    }
    end_stage(Stage::kBackward);
    loss_sum = loss_sum.defined() ? loss_sum + loss.detach() : loss.detach();
    gates = std::move(out.gates);
    for (const RunRecordPtr& record : out.records) merge_rows(ran_, record->rows());
    rows_done_ += batch_shape().stride;
  }
  return loss_sum;
}

StepRecord Trainer::read_back(const at::Tensor& loss, const at::Tensor& norm,
                              const std::vector<at::Tensor>& gates) const {
  const NvtxRange range("train.read_back");
  const at::Tensor scalars = at::stack({loss.to(at::kDouble), norm.to(at::kDouble)});
  const at::Tensor values = at::cat({scalars, reduce_gates(gates)}).cpu();
  const double* v = values.data_ptr<double>();
  StepRecord record;
  record.step = steps_done_;
  record.rows = rows_done_;
  record.loss = v[0];
  record.grad_norm = v[1];
  record.gate = gate_stats(v + 2);
  record.lr = optimizer_.applied_learning_rate();
  return record;
}

StepRecord Trainer::step(bool wait_each, const OnStage& on_stage) {
  start_loader();
  reset_peak_memory(device_);
  StageClock clock(device_, wait_each);
  clock.start();
  std::vector<at::Tensor> gates;
  const NvtxRange step_range("train.step");
  const at::Tensor loss = forward_backward(clock, on_stage, gates);
  const at::Tensor norm = [&] {
    const NvtxRange range("train.optimizer");
    return optimizer_.step(parts_.learning_rate(steps_done_));
  }();
  clock.end_stage(Stage::kOptimizer);
  if (on_stage) on_stage(Stage::kOptimizer);
  ++steps_done_;
  StepRecord record = read_back(loss, norm, gates);
  clock.finish();
  record.load_ms = clock.stage_ms(Stage::kLoad);
  record.forward_ms = clock.stage_ms(Stage::kForward);
  record.backward_ms = clock.stage_ms(Stage::kBackward);
  record.optimizer_ms = clock.stage_ms(Stage::kOptimizer);
  record.step_ms = clock.total_ms();
  const auto tokens =
      static_cast<double>(options_.batch * options_.accum * parts_.world * seq_len_);
  record.tok_s = tokens / (record.step_ms / 1000.0);
  record.mem_mib = used_memory_mib(device_);
  // A CPU's peak cannot be set back, so there a step stands for itself by what it leaves.
  record.peak_mib = device_.is_cpu() ? record.mem_mib : peak_memory_mib(device_);
  return record;
}

std::string Trainer::locate_non_finite() {
  for (int64_t micro = options_.accum; micro > 0; --micro) {
    const at::Tensor tokens = load_again(rows_done_ - micro * batch_shape().stride);
    const std::string found = train::locate_non_finite(parts_.model, tokens, parts_.loss);
    if (!found.empty()) return found;
  }
  return "not reproduced: repeating the step gave finite values everywhere";
}

}  // namespace nsa::train
