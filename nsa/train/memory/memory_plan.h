#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "nsa/model/model_config.h"
#include "nsa/train/shard/sharding.h"

namespace nsa::train {

/// What decides the memory of a training step.
struct StepShape {
  int64_t batch = 1, accum = 1, seq_len = 1;
  int64_t ranks = 1;
  int64_t context_ranks = 1;  ///< that divide a row among them; seq_len is a part
  Sharding sharding = Sharding::kNone;
  int64_t shard_ranks = 1;  ///< that divide one copy among them
  bool activation_checkpointing = false;
  int64_t value_bytes = 4;   ///< of activations
  int64_t master_bytes = 4;  ///< of parameters, gradients and moments
  bool kernels = false;      ///< the CUDA kernels run: they keep less and compute more again
  /// What libraries and kernels work in, in bytes (step_workspace.h).
  double products_workspace = 0;            ///< of matrix products, as long as the process lives
  double selected_workspace_per_token = 0;  ///< of the selected branch's backward pass
};

struct MemoryPart {
  std::string name;
  double mib = 0;
};

/// Memory of a rank's tensors where a step needs most: when its backward pass begins, in that of
/// its last layer, or at the update.
struct MemoryPlan {
  std::vector<MemoryPart> parts;
  double total_mib() const;
};

/// By formula, from what the operators keep for their backward pass: per layer the inputs of norms,
/// products and branches; logits and their softmax; weights rounded to the compute type. With
/// kernels, what the backward pass of the last layer has beside it. Temporaries of single
/// operators on a CPU, and what an allocator loses, are not in it.
MemoryPlan plan_memory(const ModelConfig& model, const StepShape& shape);

/// Parameters of a model and of one of its layers, by formula.
int64_t count_parameters(const ModelConfig& model);
int64_t layer_parameters(const ModelConfig& model);

/// A change of settings that keeps the rows of a step; `text` states it if it does not.
struct FittingChange {
  std::string text;  ///< "activation_checkpointing=true batch=2 accum=8"; empty: nothing fits
  double predicted_mib = 0;
};

/// The first change that is predicted to fit `capacity_mib`: the largest micro-batch, without and
/// with activation checkpointing, of several ranks without and with sharded parameters, that keeps
/// the rows of a step; else shorter rows. Predictions are
/// multiplied by `factor`, the measured memory over the predicted one.
FittingChange fitting_change(const ModelConfig& model, const StepShape& shape, double capacity_mib,
                             double factor);

}  // namespace nsa::train
