#include "nsa/train/data/shard_writer.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "base/hash/sha256.h"
#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

void add(DocumentCounts& sum, const DocumentCounts& more) {
  sum.taken += more.taken;
  sum.nulls += more.nulls;
  sum.nul_bytes += more.nul_bytes;
}

std::string why_empty(const DocumentCounts& read) {
  std::string why = "the input files hold no text";
  if (read.nulls > 0) why += " (" + std::to_string(read.nulls) + " null values)";
  if (read.nul_bytes > 0) why += " (" + std::to_string(read.nul_bytes) + " NUL bytes)";
  return why;
}

}  // namespace

ShardWriter::ShardWriter(CorpusTarget& target, std::string name, ShardOptions options)
    : target_(target), options_(std::move(options)) {
  if (name.empty()) throw InputError("the corpus needs a name: --name NAME");
  if (options_.shard_tokens < 1 || options_.block_tokens < 1 || options_.val_every < 0)
    throw InputError("shard size and block size must be >= 1, val_every >= 0");
  manifest_.name = std::move(name);
}

void ShardWriter::add_document(std::string_view bytes) {
  append(bytes);
  append(std::string_view("\0", 1));
}

void ShardWriter::add_source(SourceFile source) { manifest_.sources.push_back(std::move(source)); }

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
  manifest_.shards.push_back(
      {name, split.name, static_cast<int64_t>(tokens.size()), base::sha256_hex(tokens)});
  target_.write_shard(manifest_.shards.back(), tokens);
}

Manifest ShardWriter::finish() {
  close_block();
  write_shard(train_);
  write_shard(val_);
  std::sort(manifest_.shards.begin(), manifest_.shards.end(),
            [](const ShardFile& a, const ShardFile& b) { return a.file < b.file; });
  target_.commit(manifest_);
  return manifest_;
}

Manifest write_corpus(const std::vector<std::filesystem::path>& files,
                      const std::filesystem::path& dir, const std::string& name,
                      const ShardOptions& options, DocumentCounts* counts) {
  for (const auto& file : files) require_known_format(file, options.format);
  CorpusTarget target(dir, files);
  ShardWriter writer(target, name, options);
  int64_t bytes = 0;
  DocumentCounts read;
  for (const auto& file : files) {
    SourceFile source;
    const auto take = [&](std::string_view document) {
      bytes += static_cast<int64_t>(document.size());
      if (!document.empty()) writer.add_document(document);
    };
    add(read, for_each_document(file, options.field, take, options.format, &source));
    writer.add_source(std::move(source));
  }
  if (counts) *counts = read;
  if (bytes == read.nul_bytes) throw InputError("the corpus is empty: " + why_empty(read));
  return writer.finish();
}

}  // namespace nsa::train
