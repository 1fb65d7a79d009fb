#include "nsa/train/data/shard_writer.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "nsa/program/input_error.h"
#include "nsa/train/data/sha256.h"

namespace nsa::train {

ShardWriter::ShardWriter(std::filesystem::path dir, std::string name, ShardOptions options)
    : dir_(std::move(dir)), options_(options) {
  if (name.empty()) throw InputError("the corpus needs a name: --name NAME");
  if (options.shard_tokens < 1 || options.block_tokens < 1 || options.val_every < 0)
    throw InputError("shard size and block size must be >= 1, val_every >= 0");
  manifest_.name = std::move(name);
}

void ShardWriter::add_document(std::string_view bytes) {
  append(bytes);
  append(std::string_view("\0", 1));
}

void ShardWriter::add_source(const std::filesystem::path& file) {
  manifest_.sources.push_back({file.filename().string(),
                               static_cast<int64_t>(std::filesystem::file_size(file)),
                               sha256_file(file)});
}

void ShardWriter::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t room = static_cast<size_t>(options_.block_tokens) - block_.size();
    const size_t taken = std::min(room, bytes.size());
    block_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (taken == room) close_block();
  }
}

void ShardWriter::close_block() {
  if (block_.empty()) return;
  ++num_blocks_;
  Split& split = options_.val_every > 0 && num_blocks_ % options_.val_every == 0 ? val_ : train_;
  split.pending += block_;
  block_.clear();
  while (static_cast<int64_t>(split.pending.size()) >= options_.shard_tokens) write_shard(split);
}

void ShardWriter::write_shard(Split& split) {
  const std::string tokens = split.pending.substr(0, static_cast<size_t>(options_.shard_tokens));
  split.pending.erase(0, tokens.size());
  if (tokens.empty()) return;
  char name[64];
  std::snprintf(name, sizeof name, "%s_%05lld.tokens", split.name.c_str(),
                static_cast<long long>(split.num_shards++));
  write_file_atomic(dir_ / name, tokens);
  manifest_.shards.push_back(
      {name, split.name, static_cast<int64_t>(tokens.size()),
       sha256_hex({reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size()})});
}

Manifest ShardWriter::finish() {
  close_block();
  write_shard(train_);
  write_shard(val_);
  std::sort(manifest_.shards.begin(), manifest_.shards.end(),
            [](const ShardFile& a, const ShardFile& b) { return a.file < b.file; });
  write_manifest(dir_, manifest_);
  return manifest_;
}

Manifest write_corpus(const std::vector<std::filesystem::path>& files,
                      const std::filesystem::path& dir, const std::string& name,
                      const ShardOptions& options, DocumentCounts* counts) {
  ShardWriter writer(dir, name, options);
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) throw InputError("cannot create folder " + dir.string() + ": " + error.message());
  // Without its manifest a folder is no corpus: an interrupted rewrite is never taken for the old
  // one.
  std::filesystem::remove(dir / kManifestName);
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    if (entry.path().extension() == ".tokens") std::filesystem::remove(entry.path());
  int64_t bytes = 0;
  DocumentCounts read;
  for (const auto& file : files) {
    const DocumentCounts of_file =
        for_each_document(file, options.field, [&](std::string_view document) {
          bytes += static_cast<int64_t>(document.size());
          if (!document.empty()) writer.add_document(document);
        });
    read.taken += of_file.taken;
    read.nulls += of_file.nulls;
    writer.add_source(file);
  }
  if (counts) *counts = read;
  if (bytes == 0)
    throw InputError("the corpus is empty: the input files hold no text" +
                     (read.nulls > 0 ? " (" + std::to_string(read.nulls) + " null values)" : ""));
  return writer.finish();
}

}  // namespace nsa::train
