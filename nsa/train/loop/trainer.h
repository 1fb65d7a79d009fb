#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

#include "nsa/model/blocks/loss.h"
#include "nsa/model/decoder.h"
#include "nsa/train/context/context_layers.h"
#include "nsa/train/data/batch_loader.h"
#include "nsa/train/data/token_source.h"
#include "nsa/train/gradients/gradient_reducer.h"
#include "nsa/train/loop/adamw.h"
#include "nsa/train/loop/non_finite.h"
#include "nsa/train/loop/stage_clock.h"
#include "nsa/train/loop/step_graph.h"
#include "nsa/train/loop/step_record.h"
#include "nsa/train/shard/moment_owners.h"
#include "nsa/train/shard/sharded_parameters.h"
#include "nsa/train/shard/sharding.h"
#include "nsa/train/train_options.h"

namespace nsa::train {

/// What a trainer is made of; every part can be exchanged or wrapped.
struct TrainerParts {
  Decoder model{nullptr};
  const TokenSource* tokens = nullptr;                ///< outlives the trainer
  LossFunction loss;                                  ///< nsa::next_token_loss; not of a task
  std::function<double(int64_t step)> learning_rate;  ///< of optimizer step 0, 1, ..
  RankGroup* ranks = nullptr;              ///< of several; every rank reads its part of a batch
  CollectiveLog* collectives = nullptr;    ///< with ranks
  ContextLayers* context = nullptr;        ///< where ranks divide rows among them
  std::function<bool()> stop_wanted = {};  ///< called once a step; true on one rank stops all
  std::function<ReducerOptions(const ReducerOptions&)> reduce = {};  ///< what is in force of them
  std::function<LoaderOptions(const LoaderOptions&)> load = {};      ///< the same of the loader's
};

/// What a model does on rows that it is not trained on.
struct Evaluation {
  double loss_nat = 0;  ///< mean over the targets
  double accuracy = 0;  ///< share of the targets whose token is the most likely one
};

/// The training loop, one optimizer step at a time: load, forward, backward (`accum` times), clip,
/// AdamW. Weights and optimizer state are fp32 on every device (fp64 for --dtype fp64); activations
/// and matrix products have the compute type. One wait for the device a step, at its end.
/// A batch of the run is the batches of all ranks, one behind the other.
class Trainer {
 public:
  /// Called when a stage of a micro-batch is complete (on the device, too, if `wait_each` was asked
  /// for).
  using OnStage = std::function<void(Stage)>;

  /// The model must be on the device already, unless its parameters are to be sharded: they go
  /// there unit by unit.
  Trainer(TrainerParts parts, const TrainOptions& options, int64_t seq_len, at::Device device);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Runs the next step. `wait_each`: see StageClock. A non-finite loss or gradient leaves the
  /// weights as they were.
  StepRecord step(bool wait_each, const OnStage& on_stage = {});

  /// Loss and accuracy over the targets of the first `batches` micro-batches of `rows`, without
  /// gradients and with the parameters as they are; the same on every rank. NaN without targets.
  Evaluation evaluate(const TokenSource& rows, int64_t batches);

  /// The first non-finite tensor of the step that was run last.
  std::string locate_non_finite();

  /// What ran so far, forward and backward, over all layers and steps.
  const std::vector<RanBackend>& ran() const { return ran_; }

  int64_t steps_done() const { return steps_done_; }
  int64_t rows_done() const { return rows_done_; }
  at::Device device() const { return device_; }
  const Decoder& model() const { return parts_.model; }
  const AdamW& optimizer() const { return optimizer_; }

  /// Goes on behind `steps` optimizer steps, which consumed `rows` rows. Only before the first
  /// step; weights, moments and generators are the caller's (train_state.h).
  void set_position(int64_t steps, int64_t rows);

  /// Moments of parameter `i`, wherever they are kept: a collective call where they are sharded.
  /// Not where parameters are.
  AdamW::Moments whole_moments(size_t i) const;
  /// Which elements of parameter `i` this rank keeps, and where in its part of their unit.
  ShardLayout::Piece kept_piece(size_t i) const;
  /// Groups of ranks keep a part of the parameters and their moments each; null: all are whole.
  const ShardCollectives* shard_group() const {
    return sharded_ ? &sharded_->collectives() : nullptr;
  }

  /// Some rank wanted to stop before the step that was run last ended.
  bool stop_agreed() const { return stop_agreed_; }
  int64_t rank() const { return parts_.ranks ? parts_.ranks->rank() : 0; }
  int64_t world() const { return parts_.ranks ? parts_.ranks->world() : 1; }
  /// Groups of ranks with rows of their own, and which of them this rank is in.
  int64_t num_row_groups() const { return parts_.context ? parts_.context->num_groups() : world(); }
  int64_t row_group() const { return parts_.context ? parts_.context->group_index() : rank(); }
  /// Buckets of gradients as they were sent in the last step, bytes; empty with one rank.
  std::vector<int64_t> bucket_bytes() const;
  /// How the sums of the last step's buckets overlapped its backward pass; zeros with one rank.
  Communication communication() const;

  /// Whether steps are launches of a graph by now; why not, where they were to be if possible.
  GraphUse graph_use() const { return {graph_ && graph_->captured(), no_graph_}; }

  /// No step may follow, of any rank: gives back what only steps need. A graph with sums in it must
  /// be gone before its ranks leave their group.
  void finish();

  /// Starts the loader, which warms up; the first step does it otherwise.
  void start_loader();
  /// What the loader did so far.
  LoaderTelemetry loader_telemetry() const;

 private:
  int64_t row_bytes() const;
  BatchShape batch_shape() const;
  struct Batch {
    at::Tensor tokens;         ///< int64 [B, S + 1] on the device
    LayerAttention attention;  ///< within documents; empty: over whole rows
    int64_t targets = 0;       ///< that its loss is the mean of, with packing
    at::Tensor answers = {};   ///< of a task, int64 [B, S + 1]; 0: nothing is asked
    at::Tensor share = {};     ///< what that mean counts for; undefined: as that of any micro-batch
  };
  Batch batch_of(const at::Tensor& rows) const;
  Batch to_device(const std::vector<uint8_t>& bytes) const;
  Batch load();
  Batch load_again(int64_t first_row) const;
  /// Tokens that this rank's model reads of a batch, and the loss of what it makes of them.
  at::Tensor inputs_of(const Batch& batch) const;
  at::Tensor loss_of(const Batch& batch, const at::Tensor& logits) const;
  /// The loss of one micro-batch, weighted so that their sum is that of the step.
  at::Tensor forward(const Batch& batch, DecoderImpl::Outputs& out);
  at::Tensor micro_batch(const Batch& batch, int64_t micro, const OnStage& end_stage,
                         StepTensors& out);
  /// Forward, backward and update on the batches that `batch` gives for 1 .. accum. `targets`: see
  /// StepTensors.
  StepTensors compute(const std::function<Batch(int64_t micro)>& batch, const OnStage& end_stage,
                      const at::Tensor& targets = {});
  StepTensors compute_loaded(const OnStage& end_stage);
  StepTensors compute_packed(const OnStage& end_stage);
  at::Tensor sum_targets(const std::vector<Batch>& batches);
  int64_t positions() const;
  int64_t rows_of_step() const;
  void prepare_graph();
  void prepare_reducer();
  AdamW make_optimizer();
  void after_backward(bool last);
  void check_graph();
  StepTensors compute_by_graph(const OnStage& end_stage);
  at::Tensor pack_host_values(const StepTensors& computed);
  void ask_stop();
  StepRecord read_back(const StepTensors& computed);
  void take_times(const StageClock& clock, StepRecord& record) const;

  TrainerParts parts_;
  TrainOptions options_;
  int64_t seq_len_;
  at::Device device_;
  int64_t answers_;                             ///< of a row; 0: every token is a target
  Sharding sharding_;                           ///< none with one rank
  std::unique_ptr<MomentOwners> owners_;        ///< with Sharding::kOptimizer
  std::unique_ptr<ShardedParameters> sharded_;  ///< with Sharding::kFull
  AdamW optimizer_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<StepGraph> graph_;  ///< with the option cuda_graph on, or auto where possible
  std::string no_graph_;              ///< with auto: why it is none
  int64_t steps_done_ = 0;
  int64_t rows_done_ = 0;
  at::Tensor stop_;  ///< fp64 [1], 1 if this rank wants to stop
  bool stop_asked_ = false;
  bool stop_agreed_ = false;
  bool inputs_differ_ = true;  ///< two inputs of the micro-batch loaded last are unlike
  std::vector<RanBackend> ran_;
};

}  // namespace nsa::train
