#pragma once
#include <filesystem>
#include <vector>

#include "nsa/train/checkpoint/sharded_checkpoint.h"
#include "nsa/train/loop/trainer.h"

namespace nsa::train {

/// Saves a trainer whose parameters are sharded: every rank of the first shard group writes its
/// pieces of parameters and moments. Collective. Throws InputError on all ranks, naming the rank
/// that could not write; checkpoints that were there stay as they are.
void save_shards(const Trainer& trainer, const std::vector<StepRecord>& trace,
                 const std::filesystem::path& dir, const RunIdentity& run, RankGroup& ranks);

/// Puts what this rank keeps of a sharded checkpoint into a trainer that has done nothing yet,
/// whatever its sharding and its number of ranks are; returns the trace. Reads one file at a time,
/// of the shards only those with pieces of this rank. Throws InputError naming file and value.
std::vector<StepRecord> restore_shards(const std::filesystem::path& folder, const RunIdentity& run,
                                       Trainer& trainer);

}  // namespace nsa::train
