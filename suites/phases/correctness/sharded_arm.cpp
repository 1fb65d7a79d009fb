#include "suites/phases/correctness/sharded_arm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "nsa/model/blocks/loss.h"
#include "nsa/train/checkpoint/checkpointer.h"
#include "nsa/train/loop/schedule.h"
#include "nsa/train/loop/trainer.h"
#include "nsa/train/loop/training_attention.h"
#include "nsa/train/memory/tensor_memory.h"

namespace suites {
namespace {

namespace train = nsa::train;

KeptValues kept_values(const train::Trainer& trainer, size_t i) {
  const train::ShardLayout::Piece piece = trainer.kept_piece(i);
  KeptValues kept{static_cast<size_t>(piece.in_parameter), {}};
  if (piece.size == 0) return kept;
  const at::Tensor values =
      trainer.optimizer().parameter(i).detach().to(at::kCPU, at::kDouble).contiguous().view({-1});
  kept.values.assign(values.const_data_ptr<double>(),
                     values.const_data_ptr<double>() + values.numel());
  return kept;
}

int64_t ranks_of(const ShardedArm& arm) { return arm.ranks != nullptr ? arm.ranks->world() : 1; }

}  // namespace

ShardedArms::ShardedArms(const PhaseCase& one, int64_t steps)
    : one_(one),
      steps_(steps),
      config_(nsa::load_model_config(one.args.get_text("model", "tiny_cpu"),
                                     nsa::model_config_folders())),
      switches_(nsa::SwitchSet::from_environment(one.in.switches)),
      attention_(
          train::training_attention(switches_, one.args.get_text("backend", "auto"), one.device)
              .options) {
  const int64_t asked = one.args.get_int("S", 0, 0);
  seq_len_ = asked > 0 ? asked : config_.seq_len;
  tokens_ = train::make_synthetic_source(train::num_token_values(config_), one.seed());
}

/// Gradients are not clipped: their norm is a sum in another order where they are sharded.
train::TrainOptions ShardedArms::options_of(const ShardedArm& arm) const {
  train::TrainOptions options;
  options.model = config_.name;
  options.data = "synthetic";
  options.steps = steps_;
  options.batch = arm.batch;
  options.seq_len = seq_len_;
  options.warmup = 1;
  options.clip_norm = 0;
  options.seed = one_.seed();
  options.dtype = one_.args.get_text("dtype", "");
  options.backend = one_.args.get_text("backend", "auto");
  options.shard = arm.shard;
  options.cuda_graph = "off";
  options.checkpoints = arm.checkpoints;
  options.resume = arm.resume;
  return options;
}

ShardedOutcome ShardedArms::train(const ShardedArm& arm) const {
  const train::TrainOptions options = options_of(arm);
  train::TrainOptions of_weights = options;
  of_weights.seed += arm.other_weights ? 1 : 0;
  train::CollectiveLog log;
  const train::Schedule schedule{options.lr, options.min_lr, options.warmup, options.steps};
  train::TrainerParts parts{.model = train::make_model(of_weights, config_, one_.device, attention_,
                                                       arm.ranks != nullptr && arm.shard == "full"),
                            .tokens = tokens_.get(),
                            .loss = nsa::next_token_loss,
                            .learning_rate = [schedule](int64_t step) { return schedule.at(step); },
                            .ranks = arm.ranks,
                            .collectives = &log};
  train::Trainer trainer(std::move(parts), options, seq_len_, one_.device);
  const train::Checkpointer checkpointer(
      options,
      train::run_identity(options, config_,
                          {.data = tokens_->describe(),
                           .ranks = ranks_of(arm),
                           .compute_type = train::compute_type(options, one_.device),
                           .device = one_.device},
                          switches_),
      arm.ranks);
  std::vector<train::StepRecord> trace = checkpointer.resume(trainer);
  if (arm.lost_position) trainer.set_position(trainer.steps_done(), 0);
  train::reset_tensor_peak(one_.device);
  while (trainer.steps_done() < arm.last_step) {
    trace.push_back(trainer.step(/*wait_each=*/false));
    one_.emitter.beat(
        {.case_id = one_.id, .step = trainer.steps_done(), .of = arm.last_step, .at = "step"});
    checkpointer.after_step(trainer, trace, trainer.steps_done() == arm.last_step);
  }
  ShardedOutcome outcome;
  outcome.peak_mib = train::tensor_peak_mib(one_.device);
  outcome.step_ms = trace.back().step_ms;
  outcome.compute_ms = trace.back().forward_ms + trace.back().backward_ms;
  for (const train::StepRecord& record : trace) {
    outcome.losses.push_back(record.loss);
    outcome.step_ms = std::min(outcome.step_ms, record.step_ms);
    outcome.compute_ms = std::min(outcome.compute_ms, record.forward_ms + record.backward_ms);
  }
  for (size_t i = 0; arm.keep_values && i < trainer.model()->parameters().size(); ++i)
    outcome.kept.push_back(kept_values(trainer, i));
  trainer.finish();
  return outcome;
}

double ShardedArms::predicted_mib(const ShardedArm& arm) const {
  const train::StepShape shape =
      train::step_shape(options_of(arm), config_, seq_len_, ranks_of(arm), one_.device);
  return train::plan_memory(config_, shape).total_mib();
}

double larger_or_nan(double a, double b) { return std::isnan(b) || b > a ? b : a; }

OutcomeDifference difference_of(const ShardedOutcome& whole, const ShardedOutcome& other) {
  if (whole.losses.size() != other.losses.size() || whole.kept.size() != other.kept.size() ||
      whole.kept.empty())
    throw std::runtime_error("arms must have the same steps and parameters, got " +
                             std::to_string(whole.losses.size()) + " and " +
                             std::to_string(other.losses.size()) + " steps, " +
                             std::to_string(whole.kept.size()) + " and " +
                             std::to_string(other.kept.size()) + " parameters");
  OutcomeDifference found;
  for (size_t i = 0; i < whole.losses.size(); ++i)
    found.loss = larger_or_nan(found.loss, std::abs(whole.losses[i] - other.losses[i]));
  for (size_t i = 0; i < whole.kept.size(); ++i)
    for (size_t k = 0; k < other.kept[i].values.size(); ++k)
      found.parameters = larger_or_nan(
          found.parameters,
          std::abs(whole.kept[i].values.at(other.kept[i].begin + k - whole.kept[i].begin) -
                   other.kept[i].values[k]));
  return found;
}

}  // namespace suites
