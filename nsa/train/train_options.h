#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "nsa/train/data/batch_loader.h"
#include "nsa/train/ranks/reducer_options.h"

namespace nsa::train {

/// Everything a training run is told, from the command line or from a case of the worker protocol.
struct TrainOptions {
  std::string model = "tiny_cpu";   ///< name in configs/models, or a file
  std::string data = "local_text";  ///< corpus name, or "synthetic"
  std::string data_root = ".data";  ///< folder of corpora
  std::string data_dir;             ///< folder of the corpus; default: data_root/data
  int64_t steps = 200;              ///< optimizer steps
  int64_t schedule_steps = 0;       ///< that the schedule counts; 0: `steps`
  int64_t batch = 4;                ///< rows of a micro-batch
  int64_t accum = 1;                ///< micro-batches of an optimizer step
  int64_t seq_len = 0;              ///< tokens of a row; 0: the model's
  double lr = 3e-3;                 ///< peak learning rate
  double min_lr = 0;                ///< learning rate of the last step
  int64_t warmup = 20;              ///< optimizer steps of warm-up
  double weight_decay = 0.1;        ///< decoupled, on matrices only
  double clip_norm = 1.0;           ///< global gradient norm; 0: no clipping
  uint64_t seed = 1;                ///< of weights and data
  std::string device = "cpu";       ///< cpu, cuda or cuda:N
  std::string dtype;  ///< compute type fp32, bf16 or fp64; default: fp32 on a CPU, bf16 on a GPU
  /// CPU threads; 0: LibTorch's choice. Small tensors gain nothing from a second one, and where
  /// other programs want the cores, too, its barriers make a step ten times slower.
  int64_t threads = 1;
  int64_t untimed_steps = 5;     ///< first steps that give no samples
  int64_t eta_steps = 50000;     ///< steps of the long run that the rate is projected to
  bool timed = false;            ///< mode time: samples, no synchronisation inside a step
  std::string checkpoints;       ///< folder of the run's checkpoints; empty: none are made
  int64_t checkpoint_every = 0;  ///< optimizer steps between two; 0: only when the process ends
  int64_t checkpoint_keep = 3;   ///< newest ones that stay
  bool resume = false;           ///< go on from the newest one, from the beginning without one
  int64_t slice_steps = 0;       ///< steps of this process, the rest is left to --resume; 0: all
  int64_t validate_every = 0;    ///< optimizer steps between two losses of kept-out rows; 0: none
  int64_t validate_batches = 8;  ///< micro-batches that such a loss is the mean of
  int64_t record_every = 1;      ///< optimizer steps between two lines of the record
  LoaderOptions loader;          ///< from the switches NSA_FWE_*
  int64_t ranks = 0;             ///< that the run must have; 0: as many as were started
  double rank_timeout_s = 300;   ///< ranks that wait for one another this long have lost it
  bool shard_optimizer = false;  ///< each rank keeps the moments of a part of the parameters
  ReducerOptions reducer;        ///< from the switches NSA_DDP_*
  bool activation_checkpointing = false;  ///< also where the model's configuration says so
  std::string backend = "auto";  ///< of attention: auto, fused or switches (training_attention.h)
  /// A step is one launch of a CUDA graph (step_graph.h): auto (where nothing stands against it),
  /// on (an error says what does) or off.
  std::string cuda_graph = "auto";
  bool packing = false;         ///< attention and loss stay within documents
  double memory_limit_mib = 0;  ///< CPU: tensors beyond it fail, as on a small device; 0: no limit
  std::optional<double> loss_bound_nat;  ///< the mean of the last 20 losses must be below

  /// Steps of the schedule: a run may be continued to a later `steps` of the same one.
  int64_t whole_run() const { return schedule_steps > 0 ? schedule_steps : steps; }
  bool is_synthetic() const { return data == "synthetic"; }
  std::filesystem::path corpus_dir() const;

  /// Throws InputError naming the first option with an impossible value.
  void validate() const;
};

/// Overrides `options` with the keys of `args` (names as in the struct; see README.md). Throws
/// InputError for unknown keys and wrong types. `where` names the args in errors.
void apply_args(const nlohmann::json& args, const std::string& where, TrainOptions& options);

}  // namespace nsa::train
