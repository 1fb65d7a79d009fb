#pragma once
#include <memory>

#include "nsa/train/trainer.h"
#include "suites/phases/phase.h"

namespace suites {

/// A trainer on fresh random tokens, for phases that look at single steps.
struct TrainingStep {
  nsa::ModelConfig model;
  nsa::train::TrainOptions options;
  int64_t seq_len = 0;
  at::ScalarType type = at::kFloat;
  std::unique_ptr<nsa::train::TokenSource> tokens;
  std::unique_ptr<nsa::train::Trainer> trainer;

  /// One step; its wall time in ms, the wait for the device included.
  double run_ms();
};

/// Model and shape from `args`: model (m7c_125m), S (0: the model's), B (1), accum (4), dtype
/// (bf16 on CUDA, fp32 on a CPU); options from the phase's switches. `seq_len` > 0 overrides S.
/// Fault P09: the loss waits for the device once an element of a row of logits, as a loop over
/// item() does. Throws ConfigError.
TrainingStep make_training_step(const PhaseCase& one, int64_t seq_len = 0);

}  // namespace suites
