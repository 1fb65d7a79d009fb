#include "nsa/train/checkpoint/checkpointer.h"

#include <array>
#include <charconv>

#include "nsa/program/input_error.h"
#include "nsa/train/checkpoint/sharded_state.h"
#include "nsa/train/ranks/rank_errors.h"

namespace nsa::train {
namespace {

/// The shortest text that reads back as the same number.
std::string exact(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

/// Switches that change neither what is computed nor in which order.
bool changes_bits(const SwitchValue& value) {
  return value.name != "NSA_NVTX" && value.name != "NSA_SDPA_AUDIT" &&
         value.name != "NSA_CASES_DIR" && !value.name.starts_with("NSA_FWE_");
}

}  // namespace

RunIdentity run_identity(const TrainOptions& o, const ModelConfig& model,
                         const RunSurroundings& surroundings, const SwitchSet& switches) {
  RunIdentity identity = {{"model", describe(model)},
                          {"data", surroundings.data},
                          {"seed", std::to_string(o.seed)},
                          {"batch", std::to_string(o.batch)},
                          {"accum", std::to_string(o.accum)},
                          {"ranks", std::to_string(surroundings.ranks)},
                          {"seq_len", std::to_string(o.seq_len > 0 ? o.seq_len : model.seq_len)},
                          {"steps", std::to_string(o.whole_run())},
                          {"warmup", std::to_string(o.warmup)},
                          {"lr", exact(o.lr)},
                          {"min_lr", exact(o.min_lr)},
                          {"weight_decay", exact(o.weight_decay)},
                          {"clip_norm", exact(o.clip_norm)},
                          {"backend", o.backend},
                          {"packing", o.packing ? "documents" : "none"},
                          {"dtype", c10::toString(surroundings.compute_type)},
                          {"device", c10::DeviceTypeName(surroundings.device.type(), true)}};
  if (o.context_ranks > 1) identity["context_ranks"] = std::to_string(o.context_ranks);
  for (const SwitchValue& value : switches.list())
    if (changes_bits(value)) identity[value.name] = value.value;
  return identity;
}

Checkpointer::Checkpointer(const TrainOptions& options, RunIdentity identity, RankGroup* ranks)
    : options_(options), identity_(std::move(identity)), ranks_(ranks) {
  if (options_.checkpoints.empty() || (ranks_ && ranks_->rank() != 0)) return;
  const std::vector<int64_t> steps = checkpoint_steps(options_.checkpoints);
  if (!steps.empty() && !options_.resume)
    throw InputError("checkpoint folder " + options_.checkpoints +
                     " holds checkpoints of an earlier run up to step " +
                     std::to_string(steps.back()) +
                     "; continue it with --resume, or name another folder");
  store_ =
      std::make_unique<CheckpointStore>(options_.checkpoints, identity_, options_.checkpoint_keep);
}

std::vector<StepRecord> Checkpointer::resume(Trainer& trainer) const {
  if (!options_.resume) return {};
  if (!ranks_) return restore(trainer);
  std::vector<StepRecord> trace;
  gather_or_throw(*ranks_, [&] {
    trace = restore(trainer);
    return std::string();
  });
  return trace;
}

std::vector<StepRecord> Checkpointer::restore(Trainer& trainer) const {
  const std::vector<int64_t> steps = checkpoint_steps(options_.checkpoints);
  if (steps.empty()) return {};
  const auto sharded = sharded_checkpoint_path(options_.checkpoints, steps.back());
  if (std::filesystem::is_directory(sharded))
    return restore_shards(sharded, identity_of_any_world(identity_), trainer);
  const auto newest = read_newest_checkpoint(options_.checkpoints, identity_);
  return newest ? restore_checkpoint(*newest, trainer) : std::vector<StepRecord>();
}

void Checkpointer::after_step(const Trainer& trainer, const std::vector<StepRecord>& trace,
                              bool last) const {
  if (options_.checkpoints.empty()) return;
  const int64_t every = options_.checkpoint_every;
  if (!last && (every == 0 || trainer.steps_done() % every != 0)) return;
  if (trainer.shard_group() != nullptr) {
    save_shards(trainer, trace, options_.checkpoints, identity_, *ranks_);
    if (store_) store_->remove_old();
    return;
  }
  const Checkpoint checkpoint = take_checkpoint(trainer, trace);
  if (store_) store_->save(checkpoint);
}

}  // namespace nsa::train
