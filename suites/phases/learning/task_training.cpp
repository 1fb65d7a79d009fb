#include "suites/phases/learning/task_training.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <mutex>
#include <stdexcept>

#include "nsa/model/blocks/loss.h"
#include "nsa/train/loop/schedule.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/loop/training_model.h"

namespace suites {
namespace {

/// Last learning rate over the largest.
constexpr double kLastShare = 0.1;

nsa::train::TrainOptions options_of(const TaskArm& arm, const TaskTraining& training) {
  nsa::train::TrainOptions options;
  options.steps = training.steps;
  options.batch = training.batch;
  options.weight_decay = training.weight_decay;
  options.seed = arm.seed;
  options.cuda_graph = "off";
  options.loader.threads = 0;
  options.loader.warmup_batches = 0;
  return options;
}

/// The global generator gives one model after the other its weights.
nsa::Decoder first_weights(const TaskArm& arm, at::Device device) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto attention = nsa::train::training_attention(nsa::SwitchSet(), "auto", device);
  return nsa::train::training_model(arm.config, arm.seed,
                                    device.is_cpu() ? at::kFloat : at::kBFloat16, device,
                                    attention.options);
}

}  // namespace

TaskResult train_on_task(const TaskArm& arm, const TaskTraining& training, at::Device device,
                         const std::function<void(const nsa::train::StepRecord&)>& on_step) {
  at::set_num_threads(1);
  const auto begin = std::chrono::steady_clock::now();
  const nsa::train::Schedule schedule{training.lr, kLastShare * training.lr, training.warmup,
                                      training.steps};
  nsa::train::TrainerParts parts{.model = first_weights(arm, device),
                                 .tokens = arm.train_rows,
                                 .loss = nsa::next_token_loss,
                                 .learning_rate = [schedule](int64_t k) { return schedule.at(k); }};
  if (arm.change) arm.change(parts);
  const int64_t seq_len = arm.config.seq_len;
  nsa::train::Trainer trainer(parts, options_of(arm, training), seq_len, device);
  for (int64_t step = 0; step < training.steps; ++step) {
    const auto record = trainer.step(/*wait_each=*/false);
    if (!record.is_finite())
      throw std::runtime_error(arm.name + ": step " + std::to_string(record.step) +
                               " is not finite: " + trainer.locate_non_finite());
    on_step(record);
  }
  const auto found =
      trainer.evaluate(*arm.kept_out, (training.val_rows + training.batch - 1) / training.batch);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return {.accuracy_pct = 100 * found.accuracy,
          .loss_nat = found.loss_nat,
          .tokens = training.steps * training.batch * seq_len,
          .seconds = taken.count()};
}

}  // namespace suites
