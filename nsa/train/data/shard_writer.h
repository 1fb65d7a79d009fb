#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "nsa/train/data/corpus_target.h"
#include "nsa/train/data/documents/documents.h"
#include "nsa/train/data/manifest.h"

namespace nsa::train {

struct ShardOptions {
  int64_t shard_tokens = int64_t{64} << 20;  ///< tokens (bytes) in a full shard
  int64_t block_tokens = 16384;              ///< the split is decided a block at a time
  int64_t val_every = 50;                    ///< every n-th block is validation data; 0: none
  std::string field = "text";                ///< of a JSON object, column of a .parquet file
  std::string format = {};  ///< of all inputs: txt, jsonl or json; empty: by their names
};

/// Turns documents into token shards in one pass. Blocks of `block_tokens` go to `train` or `val`,
/// so the two never share a token and the split needs no knowledge of the corpus' size.
class ShardWriter {
 public:
  /// `target` outlives it.
  ShardWriter(CorpusTarget& target, std::string name, ShardOptions options);

  /// Appends the bytes of one document and the end-of-document token.
  void add_document(std::string_view bytes);

  /// Records a source file in the manifest.
  void add_source(SourceFile source);

  /// Writes what is buffered; the corpus replaces an old one.
  Manifest finish();

 private:
  struct Split {
    std::string name, pending;
    int64_t num_shards = 0;
  };
  void append(std::string_view bytes);
  void close_block();
  void write_shard(Split& split);

  CorpusTarget& target_;
  ShardOptions options_;
  Manifest manifest_;
  std::string block_;
  int64_t num_blocks_ = 0;
  Split train_{"train", {}}, val_{"val", {}};
};

/// Reads `files`, writes shards and manifest into `dir` (created; an earlier corpus there stands
/// until the new one is complete, and is replaced then) and returns the manifest. `counts` receives
/// what was read; may be null. Throws InputError for a corpus without text, and as CorpusTarget and
/// for_each_document do.
Manifest write_corpus(const std::vector<std::filesystem::path>& files,
                      const std::filesystem::path& dir, const std::string& name,
                      const ShardOptions& options, DocumentCounts* counts = nullptr);

}  // namespace nsa::train
