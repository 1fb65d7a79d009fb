#include "nsa/train/checkpoint/checkpointer.h"

#include <array>
#include <charconv>

#include "nsa/program/input_error.h"

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
  for (const SwitchValue& value : switches.list())
    if (changes_bits(value)) identity[value.name] = value.value;
  return identity;
}

Checkpointer::Checkpointer(const TrainOptions& options, RunIdentity identity, int64_t rank)
    : options_(options), identity_(std::move(identity)) {
  if (options_.checkpoints.empty() || rank != 0) return;
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
  const auto newest = read_newest_checkpoint(options_.checkpoints, identity_);
  return newest ? restore_checkpoint(*newest, trainer) : std::vector<StepRecord>();
}

void Checkpointer::after_step(const Trainer& trainer, const std::vector<StepRecord>& trace,
                              bool last) const {
  if (options_.checkpoints.empty()) return;
  const int64_t every = options_.checkpoint_every;
  if (!last && (every == 0 || trainer.steps_done() % every != 0)) return;
  const Checkpoint checkpoint = take_checkpoint(trainer, trace);
  if (store_) store_->save(checkpoint);
}

}  // namespace nsa::train
