#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "base/hash/sha256.h"
#include "nsa/train/data/manifest.h"

namespace nsa::train {

/// Bytes in order, each once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills the front of `out`; returns how many bytes, 0 at the end. Throws InputError naming the
  /// file.
  virtual size_t read(std::span<char> out) = 0;
};

/// A file or a pipe, read once: what passes is counted and hashed.
class InputFile : public ByteSource {
 public:
  /// Throws InputError for what cannot be opened, and for a folder.
  explicit InputFile(const std::filesystem::path& file);
  size_t read(std::span<char> out) override;
  /// For the manifest; all bytes must have been read.
  SourceFile description();

 private:
  std::filesystem::path file_;
  std::ifstream in_;
  base::Sha256 hash_;
  int64_t bytes_ = 0;
};

/// The content of a gzip file (all its members). Throws InputError for damaged or truncated data.
std::unique_ptr<ByteSource> unpack_gzip(ByteSource& packed, const std::string& name);

/// The content of a Zstandard file (all its frames). The same errors.
std::unique_ptr<ByteSource> unpack_zstd(ByteSource& packed, const std::string& name);

}  // namespace nsa::train
