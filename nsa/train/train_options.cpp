#include "nsa/train/train_options.h"

#include "nsa/program/strict_json.h"
#include "nsa/train/data/corpus_folder.h"

namespace nsa::train {
namespace {

void require(bool ok, const std::string& name, const std::string& want, const std::string& have) {
  if (!ok) throw InputError("training option " + name + " must be " + want + ", got " + have);
}

}  // namespace

std::filesystem::path TrainOptions::corpus_dir() const {
  return data_dir.empty() ? corpus_folder(data_root, data) : std::filesystem::path(data_dir);
}

void TrainOptions::validate() const {
  const auto at_least = [](const char* name, int64_t value, int64_t bound) {
    require(value >= bound, name, ">= " + std::to_string(bound), std::to_string(value));
  };
  const auto not_negative = [](const char* name, double value) {
    require(value >= 0 && value < 1e30, name, "finite and >= 0", std::to_string(value));
  };
  at_least("steps", steps, 1);
  require(schedule_steps == 0 || schedule_steps >= steps, "schedule_steps",
          "0 or >= steps (" + std::to_string(steps) + ")", std::to_string(schedule_steps));
  at_least("batch", batch, 1);
  at_least("accum", accum, 1);
  at_least("seq_len", seq_len, 0);
  at_least("warmup", warmup, 0);
  at_least("threads", threads, 0);
  at_least("untimed_steps", untimed_steps, 0);
  at_least("eta_steps", eta_steps, 1);
  at_least("checkpoint_every", checkpoint_every, 0);
  at_least("checkpoint_keep", checkpoint_keep, 1);
  at_least("slice_steps", slice_steps, 0);
  at_least("validate_every", validate_every, 0);
  at_least("validate_batches", validate_batches, 1);
  at_least("record_every", record_every, 1);
  require(validate_every == 0 || !is_synthetic(), "validate_every",
          "0 where data is synthetic: random tokens have no kept-out part",
          std::to_string(validate_every));
  at_least("ranks", ranks, 0);
  require(rank_timeout_s > 0, "rank_timeout_s", "> 0", std::to_string(rank_timeout_s));
  require(!checkpoints.empty() || (checkpoint_every == 0 && !resume && slice_steps == 0),
          "checkpoints", "a folder where checkpoint_every, resume or slice_steps is given", "\"\"");
  not_negative("lr", lr);
  not_negative("memory_limit_mib", memory_limit_mib);
  require(memory_limit_mib == 0 || device == "cpu", "memory_limit_mib",
          "0 where the device is not the CPU", std::to_string(memory_limit_mib));
  require(backend == "auto" || backend == "fused" || backend == "switches", "backend",
          "auto, fused or switches", "\"" + backend + "\"");
  require(cuda_graph == "auto" || cuda_graph == "on" || cuda_graph == "off", "cuda_graph",
          "auto, on or off", "\"" + cuda_graph + "\"");
  not_negative("min_lr", min_lr);
  not_negative("weight_decay", weight_decay);
  not_negative("clip_norm", clip_norm);
  require(min_lr <= lr, "min_lr", "<= lr (" + std::to_string(lr) + ")", std::to_string(min_lr));
  require(!model.empty(), "model", "a name or a file", "\"\"");
  require(!data.empty(), "data", "a corpus name or synthetic", "\"\"");
  require(dtype.empty() || dtype == "fp32" || dtype == "bf16" || dtype == "fp64", "dtype",
          "fp32, bf16 or fp64", "\"" + dtype + "\"");
}

void apply_args(const nlohmann::json& args, const std::string& where, TrainOptions& options) {
  StrictObject object(args, where);
  const auto take = [&object](const char* key, auto& value) {
    value = object.optional(key, value);
  };
  take("model", options.model);
  take("data", options.data);
  take("data_root", options.data_root);
  take("data_dir", options.data_dir);
  take("steps", options.steps);
  take("schedule_steps", options.schedule_steps);
  take("batch", options.batch);
  take("accum", options.accum);
  take("seq_len", options.seq_len);
  take("lr", options.lr);
  take("min_lr", options.min_lr);
  take("warmup", options.warmup);
  take("weight_decay", options.weight_decay);
  take("clip_norm", options.clip_norm);
  take("seed", options.seed);
  take("dtype", options.dtype);
  take("threads", options.threads);
  take("untimed_steps", options.untimed_steps);
  take("eta_steps", options.eta_steps);
  take("checkpoints", options.checkpoints);
  take("checkpoint_every", options.checkpoint_every);
  take("checkpoint_keep", options.checkpoint_keep);
  take("resume", options.resume);
  take("slice_steps", options.slice_steps);
  take("validate_every", options.validate_every);
  take("validate_batches", options.validate_batches);
  take("record_every", options.record_every);
  take("ranks", options.ranks);
  take("rank_timeout_s", options.rank_timeout_s);
  take("shard_optimizer", options.shard_optimizer);
  take("activation_checkpointing", options.activation_checkpointing);
  take("backend", options.backend);
  take("cuda_graph", options.cuda_graph);
  take("packing", options.packing);
  take("memory_limit_mib", options.memory_limit_mib);
  const double bound = object.optional("loss_bound_nat", options.loss_bound_nat.value_or(-1));
  if (bound >= 0) options.loss_bound_nat = bound;
  for (const char* engine_key : {"first_step_s", "rate_floor"}) object.ignore(engine_key);
  object.finish();
}

}  // namespace nsa::train
