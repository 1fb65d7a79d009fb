#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "nsa/model/decoder.h"
#include "nsa/train/data/token_source.h"
#include "nsa/train/memory/memory_plan.h"
#include "nsa/train/memory/tensor_memory.h"
#include "nsa/train/ranks/rank_agreement.h"
#include "nsa/train/ranks/rank_place.h"
#include "nsa/train/record/judge.h"
#include "nsa/train/train_options.h"

/// What a run is made of, from its options.
namespace nsa::train {

/// Type of activations and matrix products: the option, or the device's default.
at::ScalarType compute_type(const TrainOptions& options, at::Device device);

/// The model with weights of the run's seed, on the device; on the CPU if they are `to_be_sharded`,
/// which takes them to the device unit by unit.
Decoder make_model(const TrainOptions& options, const ModelConfig& config, at::Device device,
                   const NsaOptions& attention, bool to_be_sharded = false);

/// Loads the option weights into a model that was just made, unless a checkpoint will be resumed,
/// which has its own. Returns a line that states which: it tells unlike files apart. Throws
/// InputError.
std::string start_from_weights(const TrainOptions& options, DecoderImpl& model);

/// Values that a token can have: those of the vocabulary that data reach, which are bytes.
int64_t num_token_values(const ModelConfig& config);

/// Throws InputError for a corpus that is missing, altered or another one.
std::unique_ptr<TokenSource> open_tokens(const TrainOptions& options, const ModelConfig& config,
                                         int64_t seq_len, int64_t world);

/// Rows that are never trained on, for the options validate_every and eval; null without either.
/// Throws InputError as above, also for a corpus without kept-out blocks.
std::unique_ptr<TokenSource> open_kept_out(const TrainOptions& options, int64_t seq_len);

/// Requires the named corpus, which is never replaced, and notes in `facts` whether it is there.
/// Throws InputError.
void require_named_data(const TokenSource& tokens, const TrainOptions& options, RunFacts& facts);

/// The device of a rank: where ranks share a machine, each takes the GPU of its local rank. Throws
/// InputError (RANK_FAULT) where there is none for it.
at::Device open_rank_device(const std::string& name, const RankPlace& place);

/// What all ranks must have in common: the run's identity, and the options beside it that decide
/// which collective calls a rank makes. Folders, threads, timeouts and the loader may differ.
RankSettings rank_settings(const TrainOptions& options, const ModelConfig& config,
                           RankSettings identity);

/// Refuses a step that cannot fit into the free memory of `device` before anything is computed:
/// throws c10::OutOfMemoryError, what was asked for is in `refused`.
void require_memory(const ModelConfig& config, const StepShape& shape, at::Device device,
                    std::optional<AllocationFailure>& refused);

/// One line for people: model, sizes, type, predicted memory, device. `collectives`: backend of
/// several ranks; empty: there is one.
std::string describe_run(const DecoderImpl& model, const StepShape& shape, at::Device device,
                         const std::string& collectives);

/// What the model makes behind the text of option sample: bytes.
std::string sample_text(const TrainOptions& options, const Decoder& model);

/// Input of the prediction of memory.
StepShape step_shape(const TrainOptions& options, const ModelConfig& config, int64_t seq_len,
                     int64_t ranks, at::Device device);

}  // namespace nsa::train
