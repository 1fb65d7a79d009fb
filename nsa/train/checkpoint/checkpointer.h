#pragma once
#include <memory>
#include <vector>

#include "nsa/model/model_config.h"
#include "nsa/switches/switches.h"
#include "nsa/train/checkpoint/train_state.h"
#include "nsa/train/train_options.h"

namespace nsa::train {

/// What a run is made of beside its options and its model.
struct RunSurroundings {
  std::string data;  ///< TokenSource::describe
  int64_t ranks = 1;
  at::ScalarType compute_type = at::kFloat;
  at::Device device = at::kCPU;
};

/// What a checkpoint of this run must agree with, and the ranks among themselves: model, data,
/// batch, schedule, optimizer, seed, types, ranks, and the switches that may change bits.
RunIdentity run_identity(const TrainOptions& options, const ModelConfig& model,
                         const RunSurroundings& surroundings, const SwitchSet& switches);

/// When a run is saved, and how it goes on. Without a folder in the options it does nothing.
class Checkpointer {
 public:
  /// Throws InputError if the folder holds checkpoints and --resume was not given.
  /// `ranks`: null with one; it outlives this. Of sharded parameters every rank writes its part, of
  /// others rank 0 all; every rank reads, so the folder must be one that all of them see.
  Checkpointer(const TrainOptions& options, RunIdentity identity, RankGroup* ranks);

  /// Goes on from the newest checkpoint, if --resume was given and there is one. Returns the trace
  /// so far. Throws InputError for a damaged or foreign one: on all ranks, naming the first that
  /// found it so. All ranks call it.
  std::vector<StepRecord> resume(Trainer& trainer) const;

  /// Saves behind a step: at every `checkpoint_every`-th, and at the `last` of this process.
  /// Throws InputError when it cannot be written; the one before it stays. All ranks call it.
  void after_step(const Trainer& trainer, const std::vector<StepRecord>& trace, bool last) const;

 private:
  std::vector<StepRecord> restore(Trainer& trainer) const;

  TrainOptions options_;
  RunIdentity identity_;
  RankGroup* ranks_;
  std::unique_ptr<CheckpointStore> store_;  ///< of rank 0 alone
};

}  // namespace nsa::train
