#include "nsa/train/run_parts.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "base/machine/host_memory.h"
#include "nsa/model/sampling.h"
#include "nsa/program/input_error.h"
#include "nsa/program/open_device.h"
#include "nsa/train/checkpoint/checkpoint_store.h"
#include "nsa/train/checkpoint/pretrained_weights.h"
#include "nsa/train/loop/training_model.h"
#include "nsa/train/memory/mib.h"
#include "nsa/train/memory/step_workspace.h"
#include "nsa/train/run.h"

namespace nsa::train {
namespace {

constexpr int64_t kByteValues = 256;
constexpr double kPlanIsExactTo = 0.95;  ///< on a GPU, of one rank or several

/// Bytes that tensors may take on `device` now; nothing: not known.
std::optional<int64_t> free_memory(at::Device device) {
  if (device.is_cpu()) return base::available_memory();
  return static_cast<int64_t>(at::accelerator::getMemoryInfo(device.index()).first);
}

}  // namespace

at::ScalarType compute_type(const TrainOptions& options, at::Device device) {
  if (options.dtype.empty()) return device.is_cpu() ? at::kFloat : at::kBFloat16;
  return options.dtype == "fp64"   ? at::kDouble
         : options.dtype == "bf16" ? at::kBFloat16
                                   : at::kFloat;
}

Decoder make_model(const TrainOptions& options, const ModelConfig& config, at::Device device,
                   const NsaOptions& attention, bool to_be_sharded) {
  Decoder model = training_model(config, options.seed, compute_type(options, device),
                                 to_be_sharded ? at::kCPU : device, attention);
  model->activation_checkpointing |= options.activation_checkpointing;
  return model;
}

std::string start_from_weights(const TrainOptions& options, DecoderImpl& model) {
  if (options.resume && !checkpoint_steps(options.checkpoints).empty())
    return "not read: the checkpoint has its own";
  const PretrainedWeights loaded = load_pretrained_weights(options.weights, model);
  return std::to_string(loaded.num_tensors) + " tensors, sha256 " + loaded.sha256;
}

int64_t num_token_values(const ModelConfig& config) { return std::min(config.vocab, kByteValues); }

std::unique_ptr<TokenSource> open_tokens(const TrainOptions& options, const ModelConfig& config,
                                         int64_t seq_len, int64_t world) {
  if (options.is_synthetic()) return make_synthetic_source(num_token_values(config), options.seed);
  if (config.vocab < kByteValues)
    throw InputError("corpora hold bytes: model " + config.name +
                     " must have a vocab of at least 256, got " + std::to_string(config.vocab));
  return open_corpus_source(options.corpus_dir(), options.data, options.seed, seq_len + 1,
                            options.batch * options.accum * world);
}

std::unique_ptr<TokenSource> open_kept_out(const TrainOptions& options, int64_t seq_len) {
  if (options.validate_every == 0 && !options.eval) return nullptr;
  return open_corpus_source(options.corpus_dir(), options.data, options.seed, seq_len + 1, 1,
                            kValidationSplit);
}

void require_named_data(const TokenSource& tokens, const TrainOptions& options, RunFacts& facts) {
  facts.real_data = tokens.is_real();
  facts.substitute = options.is_synthetic() || facts.real_data ? "" : tokens.describe();
  if (!facts.substitute.empty())
    throw InputError("data " + options.data + " were replaced by " + facts.substitute +
                     "; nothing was trained");
}

at::Device open_rank_device(const std::string& name, const RankPlace& place) {
  if (place.world == 1 || name != "cuda") return open_device(name);
  try {
    return open_device("cuda:" + std::to_string(place.local_rank));
  } catch (const InputError& error) {
    throw InputError("RANK_FAULT: rank " + std::to_string(place.rank) + " of " +
                     std::to_string(place.world) + " has no GPU of its own: " + error.what() +
                     "; start one rank a GPU");
  }
}

RankSettings rank_settings(const TrainOptions& o, const ModelConfig& config,
                           RankSettings identity) {
  // The switches of the training shape; options of their own, as they are in force.
  for (const char* shape : {"NSA_BATCH_SIZE", "NSA_ACCUM", "NSA_SEQ_LEN"}) identity.erase(shape);
  const auto yes = [](bool on) { return on ? "true" : "false"; };
  identity["schedule_steps"] = identity["steps"];  // a run is identified by the schedule's steps
  identity["steps"] = std::to_string(o.steps);
  identity["weights"] = o.weights.empty() ? "none" : "given";
  identity["slice_steps"] = std::to_string(o.slice_steps);
  identity["checkpoints"] = o.checkpoints.empty() ? "none" : "a folder";
  identity["checkpoint_every"] = std::to_string(o.checkpoint_every);
  identity["resume"] = yes(o.resume);
  identity["validate_every"] = std::to_string(o.validate_every);
  identity["validate_batches"] = std::to_string(o.validate_batches);
  identity["eval"] = yes(o.eval);
  identity["shard"] = o.shard;
  identity["shard_group"] = std::to_string(o.shard_group);
  identity["context_ranks"] = std::to_string(o.context_ranks);
  identity["activation_checkpointing"] =
      yes(o.activation_checkpointing || config.activation_checkpointing);
  identity["cuda_graph"] = o.cuda_graph;
  return identity;
}

StepShape step_shape(const TrainOptions& o, const ModelConfig& config, int64_t seq_len,
                     int64_t ranks, at::Device device) {
  const at::ScalarType type = compute_type(o, device);
  const auto bytes = [](at::ScalarType t) { return static_cast<int64_t>(c10::elementSize(t)); };
  const StepShape shape{
      .batch = o.batch,
      .accum = o.accum,
      .seq_len = seq_len / o.context_ranks,
      .ranks = ranks,
      .context_ranks = o.context_ranks,
      .sharding = sharding_of(o.shard),
      .shard_ranks = o.shard_group > 0 ? o.shard_group : ranks,
      .activation_checkpointing = o.activation_checkpointing || config.activation_checkpointing,
      .value_bytes = bytes(type),
      .master_bytes = bytes(type == at::kDouble ? at::kDouble : at::kFloat),
      .kernels = device.is_cuda() && bytes(type) == 2 && o.backend != "switches"};
  return with_workspaces(shape, config, type, device);
}

void require_memory(const ModelConfig& config, const StepShape& shape, at::Device device,
                    std::optional<AllocationFailure>& refused) {
  const std::optional<int64_t> available = free_memory(device);
  if (!available) return;
  const double needed = plan_memory(config, shape).total_mib() * kMib;
  // What a GPU lacks by less than a plan is exact to, its allocator decides.
  const double least = device.is_cpu() ? needed : kPlanIsExactTo * needed;
  if (least <= static_cast<double>(*available)) return;
  refused = AllocationFailure{.asked_mib = needed / kMib,
                              .capacity_mib = static_cast<double>(*available) / kMib};
  TORCH_CHECK_WITH(OutOfMemoryError, false, "a step of ", shape.batch, " rows of ", shape.seq_len,
                   " tokens takes ", base::gib_text(needed), " at least and ",
                   base::gib_text(static_cast<double>(*available)), " are available",
                   device.is_cpu() ? "" : " on " + device.str(), "; nothing was computed");
}

std::string sample_text(const TrainOptions& options, const Decoder& model) {
  std::vector<int64_t> prompt;
  for (const char byte : options.sample) prompt.push_back(static_cast<uint8_t>(byte));
  const at::Tensor made = sample_tokens(model, at::tensor(prompt, at::kLong),
                                        {.tokens = options.sample_tokens,
                                         .temperature = options.temperature,
                                         .seed = options.seed,
                                         .num_values = num_token_values(model->config())});
  std::string text;
  for (int64_t i = 0; i < made.numel(); ++i) text += static_cast<char>(made[i].item<int64_t>());
  return text;
}

std::string describe_run(const DecoderImpl& model, const StepShape& shape, at::Device device,
                         const std::string& collectives) {
  return model.config().name + ": " + std::to_string(model.num_parameters()) +
         " parameters, S=" + std::to_string(shape.seq_len) + " B=" + std::to_string(shape.batch) +
         " accum=" + std::to_string(shape.accum) + ", " + c10::toString(model.compute_type) +
         (model.activation_checkpointing ? ", activation checkpointing" : "") + ", " +
         std::to_string(std::lround(plan_memory(model.config(), shape).total_mib())) +
         " MiB predicted on " + device.str() +
         (collectives.empty() ? ""
                              : "; " + std::to_string(shape.ranks) + " ranks over " + collectives);
}

void apply_switches(const SwitchSet& switches, TrainOptions& options) {
  options.batch = switches.get_int("NSA_BATCH_SIZE", options.batch);
  options.accum = switches.get_int("NSA_ACCUM", options.accum);
  options.seq_len = switches.get_int("NSA_SEQ_LEN", options.seq_len);
  options.reducer.bucket_mib = switches.get_int("NSA_DDP_BUCKET_MB");
  options.reducer.bf16 = switches.get_text("NSA_DDP_COMPRESS") == "bf16";
  options.loader.threads = switches.get_bool("NSA_FWE_PREFETCH") ? options.loader.threads : 0;
  options.loader.queue = switches.get_int("NSA_FWE_Q");
  options.loader.rows_per_read = switches.get_int("NSA_FWE_DOC_BATCH");
  options.loader.warmup_batches = switches.get_int("NSA_FWE_WARMUP_BATCHES");
  options.loader.warmup_timeout_s = static_cast<double>(switches.get_int("NSA_FWE_WARMUP_TIMEOUT"));
}

}  // namespace nsa::train
