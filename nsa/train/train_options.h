#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/options/option.h"
#include "nsa/train/data/batch_loader.h"
#include "nsa/train/gradients/reducer_options.h"

namespace nsa::train {

/// Options of a training run, from the command line or from a case of the worker protocol.
/// `describe` is their only description (base/options), and a test holds
/// configs/kinds/nsa-train.json to it.
struct TrainOptions {
  std::string model = "tiny_cpu";
  std::string attention;  ///< with_attention (nsa/model/attention_variant.h); empty: the model's
  std::string weights;
  std::string data = "local_text";
  std::string data_root = ".data";
  int64_t steps = 200;
  int64_t schedule_steps = 0;
  int64_t batch = 4;
  int64_t accum = 1;
  int64_t seq_len = 0;
  double lr = 3e-3;
  double min_lr = 0;
  int64_t warmup = 20;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  uint64_t seed = 1;
  std::string device = "cpu";  ///< cpu, cuda or cuda:N
  std::string dtype;
  /// CPU threads; 0: LibTorch's choice. Small tensors gain nothing from a second one, and where
  /// other programs want the cores, too, its barriers make a step ten times slower.
  int64_t threads = 1;
  int64_t untimed_steps = 5;
  bool timed = false;  ///< mode time: samples, no synchronisation inside a step
  std::string checkpoints;
  int64_t checkpoint_every = 0;
  int64_t checkpoint_keep = 3;
  bool resume = false;
  int64_t slice_steps = 0;
  int64_t validate_every = 0;
  int64_t validate_batches = 8;
  bool eval = false;
  std::string sample;
  int64_t sample_tokens = 200;
  double temperature = 0;
  int64_t record_every = 1;
  LoaderOptions loader;  ///< from the switches NSA_FWE_*
  int64_t ranks = 0;
  double rank_timeout_s = 300;
  std::string shard = "none";  ///< sharding_of (shard/sharding.h)
  int64_t shard_group = 0;
  int64_t context_ranks = 1;
  ReducerOptions reducer;  ///< from the switches NSA_DDP_*
  bool activation_checkpointing = false;
  std::string backend = "auto";
  /// A step is one launch of a CUDA graph (step_graph.h): auto (where no obstacle exists), on (an
  /// obstacle is an error that names it) or off.
  std::string cuda_graph = "auto";
  bool packing = false;
  double memory_limit_mib = 0;

  template <class Visitor>
  static void describe(Visitor& v);

  /// Steps of the schedule: a run may be continued to a later `steps` of the same one.
  int64_t whole_run() const { return schedule_steps > 0 ? schedule_steps : steps; }
  bool trains() const { return !eval && sample.empty(); }
  bool is_synthetic() const { return data == "synthetic"; }
  std::filesystem::path corpus_dir() const;

  /// Throws InputError naming the first option with an impossible value.
  void validate() const;
};

/// Overrides `options` with the keys of `args`. Throws InputError for unknown keys and wrong types.
/// `where` names the args in errors.
void apply_args(const nlohmann::json& args, const std::string& where, TrainOptions& options);

template <class Visitor>
void TrainOptions::describe(Visitor& v) {
  using O = TrainOptions;
  v({"model", "name in configs/models, or a .json file"}, &O::model);
  v({.name = "attention",
     .doc = "in place of the model's: nsa, dense, no_compressed, no_selected or no_window (NSA "
            "without "
            "a branch); empty: the model's",
     .choices = "nsa, dense, no_compressed, no_selected or no_window"},
    &O::attention);
  v({.name = "weights",
     .doc = "safetensors file or folder of a pretrained model that the first step starts from; "
            "empty: random weights",
     .must = base::TextMust::kNotBeEmpty},
    &O::weights);
  v({"data", "corpus made by nsa-data, or synthetic: fresh uniform random tokens each step"},
    &O::data);
  v({.name = "data_root", .doc = "folder of corpora", .in_kind = false}, &O::data_root);
  v({.name = "steps", .doc = "optimizer steps", .least = 1}, &O::steps);
  v({.name = "schedule_steps",
     .doc = "steps of the learning-rate schedule, where a later run goes on to them; 0: steps",
     .least = 0},
    &O::schedule_steps);
  v({.name = "batch", .doc = "rows of a micro-batch", .least = 1}, &O::batch);
  v({.name = "accum", .doc = "micro-batches of an optimizer step", .least = 1}, &O::accum);
  v({.name = "seq_len", .doc = "tokens of a row; 0: the model's", .least = 0}, &O::seq_len);
  v({.name = "lr", .doc = "peak learning rate", .least = 0}, &O::lr);
  v({.name = "min_lr", .doc = "learning rate of the last step", .least = 0}, &O::min_lr);
  v({.name = "warmup", .doc = "optimizer steps of linear warm-up", .least = 0}, &O::warmup);
  v({.name = "weight_decay", .doc = "decoupled, on matrices only", .least = 0}, &O::weight_decay);
  v({.name = "clip_norm", .doc = "largest global gradient norm; 0: no clipping", .least = 0},
    &O::clip_norm);
  v({.name = "seed", .doc = "of weights and data", .in_kind = false}, &O::seed);
  v({.name = "dtype",
     .doc = "compute type fp32, bf16 or fp64; empty: fp32 on a CPU, bf16 on a GPU",
     .choices = "fp32, bf16 or fp64"},
    &O::dtype);
  v({.name = "threads", .doc = "CPU threads; 0: LibTorch's choice", .least = 0}, &O::threads);
  v({.name = "untimed_steps",
     .doc = "first steps that give no samples",
     .least = 0,
     .on_command_line = false},
    &O::untimed_steps);
  v({.name = "checkpoints",
     .doc = "folder of the run's checkpoints; empty: none are made",
     .must = base::TextMust::kNotBeEmpty},
    &O::checkpoints);
  v({.name = "checkpoint_every",
     .doc = "optimizer steps between two checkpoints; 0: only when the process ends",
     .least = 0},
    &O::checkpoint_every);
  v({.name = "checkpoint_keep", .doc = "newest checkpoints that stay", .least = 1},
    &O::checkpoint_keep);
  v({"resume", "go on from the newest checkpoint, if there is one"}, &O::resume);
  v({.name = "slice_steps",
     .doc = "steps of this process, the rest is left to a resumed one; 0: all",
     .least = 0},
    &O::slice_steps);
  v({.name = "validate_every",
     .doc = "optimizer steps between two losses of the corpus's kept-out rows; 0: none",
     .least = 0},
    &O::validate_every);
  v({.name = "validate_batches",
     .doc = "micro-batches that such a loss is the mean of",
     .least = 1},
    &O::validate_batches);
  v({.name = "eval",
     .doc =
         "train nothing: the loss of the corpus's kept-out rows, with --resume behind the newest "
         "checkpoint",
     .in_kind = false},
    &O::eval);
  v({.name = "sample",
     .doc = "train nothing: continue this text, with --resume by the newest checkpoint",
     .must = base::TextMust::kNotBeEmpty,
     .in_kind = false},
    &O::sample);
  v({.name = "sample_tokens", .doc = "bytes that --sample makes", .least = 1, .in_kind = false},
    &O::sample_tokens);
  v({.name = "temperature",
     .doc = "of --sample; 0: the most likely byte each time",
     .least = 0,
     .in_kind = false},
    &O::temperature);
  v({.name = "record_every",
     .doc = "optimizer steps between two lines of the record and two samples of speed",
     .least = 1},
    &O::record_every);
  v({.name = "ranks",
     .doc = "processes that train together, one a GPU (on CPUs: over Gloo); 0: as many as were "
            "started",
     .least = 0},
    &O::ranks);
  v({.name = "rank_timeout_s",
     .doc = "seconds that ranks wait for one another before they call it lost",
     .flag = "rank-timeout",
     .above = 0},
    &O::rank_timeout_s);
  v({.name = "shard",
     .doc = "what the ranks divide among them: none, optimizer (moments) or full (parameters and "
            "gradients, too, gathered layer by layer)",
     .choices = "none, optimizer or full"},
    &O::shard);
  v({.name = "shard_group",
     .doc = "with shard full: ranks that divide one copy among them, as the next ones do with "
            "another; 0: all",
     .least = 0},
    &O::shard_group);
  v({.name = "context_ranks",
     .doc =
         "ranks that divide the tokens of every row among them, a divisor of their number; 1: each "
         "has rows of its own",
     .least = 1},
    &O::context_ranks);
  v({"activation_checkpointing",
     "layers keep their input alone and compute the rest twice; same gradients"},
    &O::activation_checkpointing);
  v({.name = "backend",
     .doc = "of attention: auto (own kernels on a GPU where no switch decides), fused or switches",
     .choices = "auto, fused or switches"},
    &O::backend);
  v({.name = "cuda_graph",
     .doc = "a step is one launch of a CUDA graph, same bits: auto (where possible), on (else an "
            "error) or off",
     .choices = "auto, on or off"},
    &O::cuda_graph);
  v({"packing",
     "attention, positions and loss stay within documents (cu_seqlens); else rows are running "
     "text"},
    &O::packing);
  v({.name = "memory_limit_mib",
     .doc = "CPU: MiB of tensors beyond which allocation fails; 0: no limit",
     .flag = "memory-limit",
     .least = 0},
    &O::memory_limit_mib);
}

}  // namespace nsa::train
