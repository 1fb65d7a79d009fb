#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nsa/train/data/manifest.h"

namespace nsa::train {

/// One split of a corpus: its shards as one long row of byte tokens, memory-mapped.
class Corpus {
 public:
  /// Opens DIR, checks size and SHA-256 of every shard of `split`. Throws InputError naming the
  /// file, what was found and the remedy: no manifest, another corpus than `name`, missing,
  /// truncated or altered shard, split without tokens.
  static Corpus open(const std::filesystem::path& dir, const std::string& name,
                     const std::string& split);

  const Manifest& manifest() const { return manifest_; }
  const std::string& manifest_sha256() const { return manifest_sha256_; }
  int64_t size() const { return size_; }

  /// Copies tokens [position, position + out.size()); requires 0 <= position and the end <= size().
  void read(int64_t position, std::span<uint8_t> out) const;

 private:
  struct Mapping {
    int64_t begin = 0;  ///< position of the first token in the split
    std::shared_ptr<const uint8_t[]> tokens;
    int64_t size = 0;
  };
  void add_shard(const std::filesystem::path& path, const ShardFile& shard);

  Manifest manifest_;
  std::string manifest_sha256_;
  std::vector<Mapping> shards_;
  int64_t size_ = 0;
};

}  // namespace nsa::train
