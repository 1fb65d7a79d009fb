#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace nsa::train {

/// One file of tokens: `tokens` bytes, one token a byte.
struct ShardFile {
  std::string file;   ///< name inside the corpus folder
  std::string split;  ///< train | val; of a task also train_answers | val_answers
  int64_t tokens = 0;
  std::string sha256;
};

/// A text, JSONL or Parquet file the shards were made from.
struct SourceFile {
  std::string file;  ///< name without folder
  int64_t bytes = 0;
  std::string sha256;
};

/// What a corpus folder holds; written last and atomically, so that a folder with a manifest is
/// complete.
struct Manifest {
  std::string name;             ///< corpus name, e.g. local_text
  int64_t vocab = 256;          ///< one token a byte
  int64_t end_of_document = 0;  ///< token behind every document
  int64_t row_tokens = 0;       ///< of a row of a task; 0: running text
  std::string task = {};        ///< how the rows of a task were made; empty: running text
  std::vector<SourceFile> sources;
  std::vector<ShardFile> shards;

  int64_t num_tokens(const std::string& split) const;
};

inline constexpr const char* kManifestName = "manifest.json";

/// Reads DIR/manifest.json strictly. Throws InputError naming file, line and remedy. `sha256`
/// receives the hash of the manifest file, which identifies the corpus; may be null.
Manifest read_manifest(const std::filesystem::path& dir, std::string* sha256 = nullptr);

/// Writes DIR/manifest.json.
void write_manifest(const std::filesystem::path& dir, const Manifest& manifest);

/// base::write_whole_file, whose errors are InputErrors here.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

}  // namespace nsa::train
