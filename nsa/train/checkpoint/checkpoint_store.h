#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "nsa/tensor_file/tensor_file.h"

namespace nsa::train {

/// What decides the bits of a run, key -> value; a checkpoint continues only a run with equal ones.
using RunIdentity = std::map<std::string, std::string>;

/// State of a run behind optimizer step `step`.
struct Checkpoint {
  int64_t step = 0;
  std::map<std::string, tensor_file::FileTensor> tensors;
};

/// The checkpoints of one run: DIR/step-00000120.safetensors and the like. A file is written under
/// a temporary name, flushed and renamed, and carries the SHA-256 of its content, so that under its
/// own name it is whole whenever the process ends. Every fault is an InputError that names the
/// file and the remedy.
class CheckpointStore {
 public:
  /// Makes the folder and keeps it for this process: a second run in it is refused. Temporary
  /// files and folders of a killed run are removed. `keep` >= 1: checkpoints that stay, the newest
  /// ones.
  CheckpointStore(std::filesystem::path dir, RunIdentity run, int64_t keep);
  ~CheckpointStore();
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;

  /// Adds a checkpoint, then removes the old ones. If it cannot be written (a full disk), those
  /// that were there stay as they are.
  void save(const Checkpoint& checkpoint) const;
  /// Removes old checkpoints, whole and sharded ones (sharded_checkpoint.h), until `keep` are left.
  void remove_old() const;

 private:
  std::filesystem::path dir_;
  RunIdentity run_;
  int64_t keep_;
  int dir_fd_ = -1;
};

/// Steps of the checkpoints in a folder, whole and sharded ones, ascending; empty when it is not
/// there.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& dir);

/// Path of the checkpoint behind `step`, and of the folder of a sharded one.
std::filesystem::path checkpoint_path(const std::filesystem::path& dir, int64_t step);
std::filesystem::path sharded_checkpoint_path(const std::filesystem::path& dir, int64_t step);
/// Behind the name of such a folder while it is not whole.
inline constexpr const char* kPartOfCheckpoint = ".part";

/// Removes a folder of files, if it is there. std::filesystem::remove_all crashes in programs with
/// LibTorch 2.11, whose library exports one of its own.
void remove_folder(const std::filesystem::path& folder, std::error_code& error);

/// Throws InputError naming checkpoint `path`, which was made behind `step`, a key and both values
/// unless the identities agree. `here` may have more steps than a run that did all of its own.
void require_same_run(const std::filesystem::path& path, const RunIdentity& there,
                      const RunIdentity& here, int64_t step);
/// "key is A there and B here", of the first key that differs; empty: none does.
std::string first_difference(const RunIdentity& there, const RunIdentity& here);

/// The newest checkpoint of a folder of whole ones; nothing if it holds none. Throws InputError for
/// one that is truncated, altered or of another run; an older one never takes its place unasked.
std::optional<Checkpoint> read_newest_checkpoint(const std::filesystem::path& dir,
                                                 const RunIdentity& run);

}  // namespace nsa::train
