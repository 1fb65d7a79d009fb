#pragma once
#include <functional>
#include <string>

#include "nsa/model/model_config.h"
#include "nsa/train/data/token_source.h"
#include "nsa/train/loop/trainer.h"

namespace suites {

/// How long and with what steps a small model is trained on a task.
struct TaskTraining {
  int64_t steps = 0, batch = 0, warmup = 0;
  double lr = 0, weight_decay = 0;
  int64_t val_rows = 0;  ///< kept-out rows that are looked at behind the last step
};

/// A model beside others that differ in one thing.
struct TaskArm {
  std::string name;  ///< of its line in plots
  nsa::ModelConfig config;
  uint64_t seed = 1;  ///< of first weights and of the order of rows
  const nsa::train::TokenSource* train_rows = nullptr;
  const nsa::train::TokenSource* kept_out = nullptr;
  /// Changes the parts before the trainer is made (injected faults); may be empty.
  std::function<void(nsa::train::TrainerParts&)> change = {};
};

struct TaskResult {
  double accuracy_pct = 0;  ///< of the answers of kept-out rows
  double loss_nat = 0;      ///< the same rows
  int64_t tokens = 0;       ///< trained on
  double seconds = 0;
};

/// Trains on CPU or GPU and looks at kept-out rows at the end. `on_step` gets what a step did.
/// First weights are drawn under a lock, so that arms may be trained by threads. Throws
/// std::runtime_error for a step that is not finite.
TaskResult train_on_task(const TaskArm& arm, const TaskTraining& training, at::Device device,
                         const std::function<void(const nsa::train::StepRecord&)>& on_step);

}  // namespace suites
