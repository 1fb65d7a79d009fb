#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "nsa/train/data/manifest.h"

namespace nsa::train {

/// A folder that a corpus is written into. An old corpus stays whole until commit():
/// new shards have names of their own until then. One writer at a time.
class CorpusTarget {
 public:
  /// Creates the folder where it is not there, and locks it. Throws InputError: another process
  /// writes there; the folder holds files that are neither of a corpus nor among `inputs`
  /// (subfolders only if they are named source or hold an input).
  CorpusTarget(std::filesystem::path dir, const std::vector<std::filesystem::path>& inputs);
  /// Removes what was written and not committed.
  ~CorpusTarget();
  CorpusTarget(const CorpusTarget&) = delete;
  CorpusTarget& operator=(const CorpusTarget&) = delete;

  /// Writes the bytes of the shard that will be called `shard.file`.
  void write_shard(const ShardFile& shard, std::string_view bytes);
  /// Lets the new corpus take the place of the old one. Whenever the process ends, one of the two
  /// is whole.
  void commit(const Manifest& manifest);

 private:
  void create_and_lock();
  void read_standing();
  void refuse_foreign(const std::vector<std::filesystem::path>& inputs) const;
  bool is_leftover(const std::string& name) const;
  void remove_leftovers(const std::vector<std::filesystem::path>& inputs) const;
  void rename_shards(const Manifest& manifest);

  std::filesystem::path dir_;
  int lock_ = -1;
  bool created_ = false;
  std::set<std::string> standing_;  ///< shards of the corpus that the folder's manifest describes
  bool half_renamed_ = false;       ///< a commit() was killed between its two manifests
  std::set<std::string> written_;   ///< not committed
};

}  // namespace nsa::train
