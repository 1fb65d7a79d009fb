#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "nsa/tensor_file/tensor_file.h"
#include "nsa/train/checkpoint/checkpoint_store.h"

namespace nsa::train {

/// Elements of a flattened tensor.
struct ElementRange {
  int64_t begin = 0, size = 0;
};

/// One file of a sharded checkpoint, as its manifest lists it.
struct ShardFileRecord {
  std::string file;
  int64_t bytes = 0;
  std::string sha256;  ///< of all its bytes
  /// Of each parameter that is in it: which elements; its moments have the same.
  std::map<std::string, ElementRange> pieces = {};
};

/// A checkpoint in a folder DIR/step-00000120: a safetensors file from each rank, one of what they
/// have in common, and a manifest that is written last. It is written as step-00000120.part and
/// renamed when it is whole. It can be continued with another number of ranks.
struct ShardedManifest {
  int64_t step = 0;
  int64_t ranks = 0;
  RunIdentity run = {};
  ShardFileRecord common = {};               ///< updates, generators, position, trace
  std::vector<ShardFileRecord> shards = {};  ///< by rank
};

/// The identity of a run whatever its ranks are: the rows of a step stand for batch, accum and
/// ranks.
RunIdentity identity_of_any_world(RunIdentity run);

/// What a file states of itself, beside its tensors.
struct ShardHead {
  int64_t step = 0;
  RunIdentity run;
};

/// Makes the folder in which the ranks write; what a killed run left there is removed. One rank
/// calls it before the others write. Throws InputError.
std::filesystem::path begin_sharded_checkpoint(const std::filesystem::path& dir, int64_t step);
/// Writes and flushes a file of it. Throws InputError.
ShardFileRecord write_shard(const std::filesystem::path& folder, const std::string& name,
                            const ShardHead& head,
                            const std::map<std::string, tensor_file::FileTensor>& tensors,
                            const std::map<std::string, ElementRange>& pieces);
/// Writes the manifest, and gives the folder its name: from then on it is a checkpoint. One rank
/// calls it when all have written. Throws InputError.
void finish_sharded_checkpoint(const std::filesystem::path& dir, const ShardedManifest& manifest);

/// Names of the files: of a rank, and of what the ranks have in common.
std::string shard_file_name(int64_t rank, int64_t ranks);
inline constexpr const char* kCommonFile = "common.safetensors";

/// Reads the manifest of a checkpoint of run `run` (identity_of_any_world), and checks that its
/// files are there. Throws InputError naming file and value.
ShardedManifest read_sharded_manifest(const std::filesystem::path& folder, const RunIdentity& run);
/// Tensors of a file. Throws InputError where its bytes are not those that the manifest lists:
/// the reason names the value that differs.
std::map<std::string, tensor_file::FileTensor> read_shard(const std::filesystem::path& folder,
                                                          const ShardedManifest& manifest,
                                                          const ShardFileRecord& record);

/// A record as text that travels between ranks, and back.
std::string to_text(const ShardFileRecord& record);
ShardFileRecord shard_record_of_text(const std::string& text);

}  // namespace nsa::train
