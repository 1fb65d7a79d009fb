#include "nsa/train/checkpoint/checkpoint_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/hash/sha256.h"
#include "nsa/program/input_error.h"

namespace nsa::train {
namespace fs = std::filesystem;
namespace {

using tensor_file::TensorFile;

constexpr const char* kFormat = "nsa checkpoint 1";
constexpr std::string_view kPrefix = "step-", kSuffix = ".safetensors";
constexpr const char* kHashKey = "sha256";
constexpr const char* kScheduleSteps = "steps";  ///< key of an identity

/// Hash over the content of a file without the hash itself.
std::string content_hash(const TensorFile& file) {
  base::Sha256 hash;
  for (const auto& [key, value] : file.metadata)
    if (key != kHashKey) hash.update(key + '\0' + value + '\0');
  for (const auto& [name, tensor] : file.tensors) {
    std::string head = name + '\0' + std::string(name_of(tensor.dtype));
    for (const int64_t length : tensor.shape) head += ' ' + std::to_string(length);
    hash.update(head + '\0');
    hash.update({reinterpret_cast<const uint8_t*>(tensor.bytes.data()), tensor.bytes.size()});
  }
  return hash.hex();
}

/// The step in the name of a file, or of the folder of a sharded checkpoint; -1 for another one.
int64_t step_of(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename();
  const size_t suffix = entry.is_directory() ? 0 : kSuffix.size();
  if (!name.starts_with(kPrefix) || (suffix > 0 && !name.ends_with(kSuffix))) return -1;
  const std::string digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - suffix);
  const bool number = !digits.empty() && digits.size() < 18 &&
                      std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  return number ? std::stoll(digits) : -1;
}

[[noreturn]] void fail_damaged(const fs::path& path, const std::string& what) {
  const std::vector<int64_t> steps = checkpoint_steps(path.parent_path());
  const std::string before =
      steps.size() > 1 ? " to continue from step " + std::to_string(steps[steps.size() - 2])
                       : ", there is none before it";
  throw InputError("checkpoint " + path.string() + " is damaged: " + what + "; remove it" + before +
                   ", or start anew in another folder");
}

std::string metadata_of(const fs::path& path, const TensorFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) fail_damaged(path, "its metadata lack \"" + key + "\"");
  return found->second;
}

/// Whether the run that ended behind `step` did all steps of its schedule, and `here` has more.
bool may_be_extended(const RunIdentity& there, const RunIdentity& here, int64_t step) {
  const auto old = there.find(kScheduleSteps), longer = here.find(kScheduleSteps);
  if (old == there.end() || longer == here.end()) return false;
  return old->second == std::to_string(step) &&
         std::strtoll(longer->second.c_str(), nullptr, 10) > step;
}

void remove_leftovers(const fs::path& dir) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kPrefix) && name.find(".safetensors.part-") != std::string::npos)
      fs::remove(entry.path(), ignored);
    if (name.starts_with(kPrefix) && name.ends_with(kPartOfCheckpoint))
      remove_folder(entry.path(), ignored);
  }
}

}  // namespace

void remove_folder(const fs::path& folder, std::error_code& error) {
  error.clear();
  if (!fs::exists(folder)) return;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) files.push_back(entry.path());
  for (const fs::path& file : files) fs::remove(file, error);
  fs::remove(folder, error);
}

std::string first_difference(const RunIdentity& there, const RunIdentity& here) {
  const auto value = [](const RunIdentity& run, const std::string& key) {
    const auto found = run.find(key);
    return found == run.end() ? "unknown" : found->second;
  };
  RunIdentity all = there;
  all.insert(here.begin(), here.end());
  for (const auto& [key, _] : all)
    if (value(there, key) != value(here, key))
      return key + " is " + value(there, key) + " there and " + value(here, key) + " here";
  return "";
}

void require_same_run(const fs::path& path, const RunIdentity& there, const RunIdentity& here,
                      int64_t step) {
  RunIdentity run = there;
  if (may_be_extended(there, here, step)) run[kScheduleSteps] = here.at(kScheduleSteps);
  const std::string other = first_difference(run, here);
  if (!other.empty())
    throw InputError("checkpoint " + path.string() + " is of another run: " + other +
                     "; run with the options it was made with, or in another folder");
}

fs::path checkpoint_path(const fs::path& dir, int64_t step) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%08lld", static_cast<long long>(step));
  return dir / (std::string(kPrefix) + digits + std::string(kSuffix));
}

fs::path sharded_checkpoint_path(const fs::path& dir, int64_t step) {
  return checkpoint_path(dir, step).replace_extension();
}

std::vector<int64_t> checkpoint_steps(const fs::path& dir) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(dir, none)) {
    const int64_t step = step_of(entry);
    if (step >= 0) steps.push_back(step);
  }
  std::ranges::sort(steps);
  const auto twice = std::ranges::unique(steps);
  steps.erase(twice.begin(), twice.end());
  return steps;
}

CheckpointStore::CheckpointStore(fs::path dir, RunIdentity run, int64_t keep)
    : dir_(std::move(dir)), run_(std::move(run)), keep_(keep) {
  std::error_code error;
  fs::create_directories(dir_, error);
  dir_fd_ = open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd_ < 0)
    throw InputError("checkpoint folder " + dir_.string() +
                     " cannot be used: " + (error ? error.message() : std::strerror(errno)) +
                     "; name a folder that can be written");
  if (flock(dir_fd_, LOCK_EX | LOCK_NB) != 0) {
    close(dir_fd_);
    throw InputError("checkpoint folder " + dir_.string() +
                     " is in use by another run; end it, or name another folder");
  }
  remove_leftovers(dir_);
}

CheckpointStore::~CheckpointStore() {
  if (dir_fd_ >= 0) close(dir_fd_);
}

void CheckpointStore::save(const Checkpoint& checkpoint) const {
  TensorFile file;
  file.tensors = checkpoint.tensors;
  file.metadata = {{"format", kFormat},
                   {"step", std::to_string(checkpoint.step)},
                   {"run", nlohmann::json(run_).dump()}};
  file.metadata[kHashKey] = content_hash(file);
  const std::vector<int64_t> before = checkpoint_steps(dir_);
  try {
    write_tensor_file(checkpoint_path(dir_, checkpoint.step), file);
  } catch (const tensor_file::TensorFileError& error) {
    throw InputError("checkpoint " + std::string(error.what()) +
                     (before.empty() ? "; there is none before it"
                                     : "; the one of step " + std::to_string(before.back()) +
                                           " is intact: make room and continue with --resume"));
  }
  fsync(dir_fd_);  // the new name, too, survives a loss of power
  remove_old();
}

void CheckpointStore::remove_old() const {
  const std::vector<int64_t> steps = checkpoint_steps(dir_);
  std::error_code ignored;
  for (size_t i = 0; i + static_cast<size_t>(keep_) < steps.size(); ++i) {
    fs::remove(checkpoint_path(dir_, steps[i]), ignored);
    const fs::path folder = sharded_checkpoint_path(dir_, steps[i]);
    fs::path part = folder;
    part += kPartOfCheckpoint;
    fs::rename(folder, part, ignored);  // no part of it counts as a checkpoint from here on
    remove_folder(part, ignored);
  }
}

std::optional<Checkpoint> read_newest_checkpoint(const fs::path& dir, const RunIdentity& run) {
  const std::vector<int64_t> steps = checkpoint_steps(dir);
  if (steps.empty()) return std::nullopt;
  const fs::path path = checkpoint_path(dir, steps.back());
  TensorFile file;
  try {
    file = tensor_file::read_tensor_file(path);
  } catch (const tensor_file::TensorFileError& error) {
    fail_damaged(path, error.what());
  }
  const std::string format = metadata_of(path, file, "format");
  if (format != kFormat) fail_damaged(path, "its format is \"" + format + "\"");
  if (metadata_of(path, file, kHashKey) != content_hash(file))
    fail_damaged(path, "its content does not have the sha256 it was written with");
  if (metadata_of(path, file, "step") != std::to_string(steps.back()))
    fail_damaged(path, "it was made behind step " + metadata_of(path, file, "step"));
  const auto identity =
      nlohmann::json::parse(metadata_of(path, file, "run"), nullptr, /*allow_exceptions=*/false);
  if (!identity.is_object()) fail_damaged(path, "its \"run\" is not a JSON object");
  RunIdentity there;
  for (const auto& [key, value] : identity.items())
    there[key] = value.is_string() ? value.get<std::string>() : value.dump();
  require_same_run(path, there, run, steps.back());
  return Checkpoint{steps.back(), std::move(file.tensors)};
}

}  // namespace nsa::train
