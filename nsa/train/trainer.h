#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "nsa/model/decoder.h"
#include "nsa/train/adamw.h"
#include "nsa/train/batch_loader.h"
#include "nsa/train/non_finite.h"
#include "nsa/train/stage_clock.h"
#include "nsa/train/step_record.h"
#include "nsa/train/token_source.h"
#include "nsa/train/train_options.h"

namespace nsa::train {

/// What a trainer is made of; every part can be exchanged or wrapped.
struct TrainerParts {
  Decoder model{nullptr};
  const TokenSource* tokens = nullptr;                ///< outlives the trainer
  LossFunction loss;                                  ///< nsa::next_token_loss
  std::function<double(int64_t step)> learning_rate;  ///< of optimizer step 0, 1, ..
  int64_t rank = 0, world = 1;                        ///< which part of every batch is read here
};

/// The training loop, one optimizer step at a time: load, forward, backward (`accum` times), clip,
/// AdamW. Weights and optimizer state are fp32 on every device (fp64 for --dtype fp64); activations
/// and matrix products have the compute type. One wait for the device a step, at its end.
/// A batch of the run is the batches of all ranks, one behind the other.
class Trainer {
 public:
  /// Called when a stage of a micro-batch is complete (on the device, too, if `wait_each` was asked
  /// for).
  using OnStage = std::function<void(Stage)>;

  /// The model must be on the device already.
  Trainer(TrainerParts parts, const TrainOptions& options, int64_t seq_len, at::Device device);

  /// Runs the next step. `wait_each`: see StageClock. A non-finite loss or gradient leaves the
  /// weights as they were.
  StepRecord step(bool wait_each, const OnStage& on_stage = {});

  /// The first non-finite tensor of the step that was run last.
  std::string locate_non_finite();

  /// What ran so far, forward and backward, over all layers and steps.
  const std::vector<RanBackend>& ran() const { return ran_; }

  int64_t steps_done() const { return steps_done_; }
  int64_t rows_done() const { return rows_done_; }
  at::Device device() const { return device_; }
  const Decoder& model() const { return parts_.model; }
  const AdamW& optimizer() const { return optimizer_; }

  /// Goes on behind `steps` optimizer steps, which consumed `rows` rows. Only before the first
  /// step; weights, moments and generators are the caller's (train_state.h).
  void set_position(int64_t steps, int64_t rows);

  /// Starts the loader, which warms up; the first step does it otherwise.
  void start_loader();
  /// What the loader did so far.
  LoaderTelemetry loader_telemetry() const;

 private:
  BatchShape batch_shape() const;
  at::Tensor to_device(const std::vector<uint8_t>& bytes) const;
  at::Tensor load();
  at::Tensor load_again(int64_t first_row) const;
  /// The loss of one micro-batch, divided by their number.
  at::Tensor forward(const at::Tensor& tokens, DecoderImpl::Outputs& out);
  at::Tensor forward_backward(StageClock& clock, const OnStage& on_stage,
                              std::vector<at::Tensor>& gates);
  StepRecord read_back(const at::Tensor& loss, const at::Tensor& norm,
                       const std::vector<at::Tensor>& gates) const;

  TrainerParts parts_;
  TrainOptions options_;
  int64_t seq_len_;
  at::Device device_;
  AdamW optimizer_;
  std::unique_ptr<BatchLoader> loader_;
  int64_t steps_done_ = 0;
  int64_t rows_done_ = 0;
  std::vector<RanBackend> ran_;
};

}  // namespace nsa::train
