#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "nsa/model/decoder.h"
#include "nsa/train/adamw.h"
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
};

/// The training loop, one optimizer step at a time: load, forward, backward (`accum` times), clip,
/// AdamW. Weights and optimizer state are fp32 on every device (fp64 for --dtype fp64); activations
/// and matrix products have the compute type. One wait for the device a step, at its end.
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

 private:
  at::Tensor load_rows(int64_t first_row) const;
  at::Tensor forward_backward(StageClock& clock, const OnStage& on_stage,
                              std::vector<at::Tensor>& gates);
  StepRecord read_back(const at::Tensor& loss, const at::Tensor& norm,
                       const std::vector<at::Tensor>& gates) const;

  TrainerParts parts_;
  TrainOptions options_;
  int64_t seq_len_;
  at::Device device_;
  AdamW optimizer_;
  int64_t steps_done_ = 0;
  int64_t rows_done_ = 0;
  std::vector<RanBackend> ran_;
};

}  // namespace nsa::train
