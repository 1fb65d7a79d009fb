#include "nsa/train/data/corpus_target.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <regex>
#include <utility>

#include "base/files/whole_file.h"
#include "nsa/program/input_error.h"

namespace nsa::train {
namespace fs = std::filesystem;
namespace {

constexpr size_t kHashInName = 12;

/// train_00000.tokens -> train_00000.0123456789ab.tokens. The hash keeps it apart from a shard of
/// the corpus that stands there; one of the same name has the same bytes.
std::string new_name(const ShardFile& shard) {
  return fs::path(shard.file).stem().string() + "." + shard.sha256.substr(0, kHashInName) +
         ".tokens";
}

/// The name of a shard before commit() ends.
bool is_new_name(const std::string& name) {
  static const std::regex pattern(R"((train|val)(_answers)?_\d{5,}\.[0-9a-f]{12}\.tokens)");
  return std::regex_match(name, pattern);
}

/// The name of a shard behind commit().
bool is_final_name(const std::string& name) {
  static const std::regex pattern(R"((train|val)(_answers)?_\d{5,}\.tokens)");
  return std::regex_match(name, pattern);
}

/// Names that only an unfinished call of this program leaves.
bool is_unfinished(const std::string& name) {
  const std::string whole = base::whole_of(name);
  return is_new_name(whole.empty() ? name : whole) || whole == kManifestName;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [end, _] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

bool holds_input(const fs::path& entry, const std::vector<fs::path>& inputs) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(entry, error);
  return std::ranges::any_of(inputs, [&](const fs::path& input) {
    return is_inside(fs::weakly_canonical(input, error), whole);
  });
}

}  // namespace

CorpusTarget::CorpusTarget(fs::path dir, const std::vector<fs::path>& inputs)
    : dir_(std::move(dir)) {
  create_and_lock();
  try {
    read_standing();
    refuse_foreign(inputs);
  } catch (...) {
    close(lock_);
    throw;
  }
  remove_leftovers(inputs);
}

CorpusTarget::~CorpusTarget() {
  std::error_code error;
  for (const std::string& name : written_)
    if (!standing_.contains(name)) fs::remove(dir_ / name, error);
  if (created_) fs::remove(dir_, error);  // only when it is empty
  close(lock_);
}

void CorpusTarget::create_and_lock() {
  std::error_code error;
  created_ = fs::create_directories(dir_, error);
  if (error) throw InputError("cannot create folder " + dir_.string() + ": " + error.message());
  lock_ = open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0)
    throw InputError("cannot open folder " + dir_.string() + ": " + std::strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(lock_);
  throw InputError("another nsa-data writes into " + dir_.string() +
                   "; wait for its end, or name another folder with --out");
}

void CorpusTarget::read_standing() {
  if (!fs::exists(dir_ / kManifestName)) return;
  try {
    for (const ShardFile& shard : read_manifest(dir_).shards) {
      standing_.insert(shard.file);
      half_renamed_ = half_renamed_ || is_new_name(shard.file);
    }
  } catch (const InputError& error) {
    throw InputError("the folder " + dir_.string() + " holds a " + kManifestName +
                     " that is not of a corpus (" + error.what() +
                     "); remove it, or name another folder with --out");
  }
}

void CorpusTarget::refuse_foreign(const std::vector<fs::path>& inputs) const {
  for (const auto& entry : fs::directory_iterator(dir_)) {
    const std::string name = entry.path().filename().string();
    const bool known = entry.is_directory()
                           ? name == "source"
                           : name == kManifestName || standing_.contains(name) || is_leftover(name);
    if (known || holds_input(entry.path(), inputs)) continue;
    throw InputError("the folder " + dir_.string() + " holds " + name +
                     ", which is not of a corpus that nsa-data made; name an empty folder with " +
                     "--out, or remove it");
  }
}

/// In the middle of a commit() shards have both names, and those of the corpus before may stand.
bool CorpusTarget::is_leftover(const std::string& name) const {
  return is_unfinished(name) || (half_renamed_ && is_final_name(name));
}

void CorpusTarget::remove_leftovers(const std::vector<fs::path>& inputs) const {
  for (const auto& entry : fs::directory_iterator(dir_)) {
    const std::string name = entry.path().filename().string();
    if (is_leftover(name) && !standing_.contains(name) && !holds_input(entry.path(), inputs))
      fs::remove(entry.path());
  }
}

void CorpusTarget::write_shard(const ShardFile& shard, std::string_view bytes) {
  const std::string name = new_name(shard);
  written_.insert(name);
  write_file_atomic(dir_ / name, bytes);
}

void CorpusTarget::commit(const Manifest& manifest) {
  Manifest under_new_names = manifest;
  for (ShardFile& shard : under_new_names.shards) shard.file = new_name(shard);
  write_manifest(dir_, under_new_names);
  created_ = false;
  for (const std::string& name : standing_)
    if (!written_.contains(name)) fs::remove(dir_ / name);
  standing_ = std::exchange(written_, {});
  rename_shards(manifest);
}

/// Both names lead to a shard while the manifest changes from one to the other.
void CorpusTarget::rename_shards(const Manifest& manifest) {
  std::error_code error;
  for (const ShardFile& shard : manifest.shards) {
    fs::create_hard_link(dir_ / new_name(shard), dir_ / shard.file, error);
    if (error) fs::copy_file(dir_ / new_name(shard), dir_ / shard.file);
  }
  write_manifest(dir_, manifest);
  for (const ShardFile& shard : manifest.shards) fs::remove(dir_ / new_name(shard));
}

}  // namespace nsa::train
