#include "nsa/train/tasks/task_corpus.h"

#include <algorithm>

#include "base/hash/sha256.h"
#include "nsa/program/input_error.h"
#include "nsa/train/data/corpus_target.h"
#include "nsa/train/data/token_source.h"

namespace nsa::train {
namespace {

/// Tokens of a split; they are made in memory.
constexpr int64_t kMostTokens = int64_t{1} << 30;

class TaskWriter {
 public:
  TaskWriter(const Task& task, uint64_t seed, CorpusTarget& target, Manifest& manifest)
      : task_(task), seed_(seed), target_(target), manifest_(manifest) {}

  void write_split(const std::string& split, int64_t first, int64_t count) {
    const int64_t width = task_.row_tokens();
    if (count < 1 || count > kMostTokens / width)
      throw InputError("task: rows of split " + split + " must be in 1.." +
                       std::to_string(kMostTokens / width) + ", got " + std::to_string(count));
    std::string tokens(static_cast<size_t>(count * width), '\0'), answers = tokens;
    const auto row_of = [&](std::string& text, int64_t row) {
      return std::span(reinterpret_cast<uint8_t*>(text.data()) + row * width,
                       static_cast<size_t>(width));
    };
    for (int64_t row = 0; row < count; ++row)
      task_.make_row(seed_, first + row, row_of(tokens, row), row_of(answers, row));
    write_shard(split, tokens);
    write_shard(split + kAnswersSplit, answers);
  }

 private:
  void write_shard(const std::string& split, const std::string& bytes) {
    manifest_.shards.push_back({split + "_00000.tokens", split, static_cast<int64_t>(bytes.size()),
                                base::sha256_hex(bytes)});
    target_.write_shard(manifest_.shards.back(), bytes);
  }

  const Task& task_;
  uint64_t seed_;
  CorpusTarget& target_;
  Manifest& manifest_;
};

}  // namespace

Manifest write_task_corpus(const Task& task, const TaskRows& rows, const std::filesystem::path& dir,
                           const std::string& name, const Task* kept_out) {
  CorpusTarget target(dir, {});
  Manifest manifest;
  manifest.name = name;
  manifest.row_tokens = task.row_tokens();
  manifest.task = task.describe() + ", seed " + std::to_string(rows.seed);
  TaskWriter(task, rows.seed, target, manifest).write_split(kTrainSplit, 0, rows.train);
  TaskWriter(kept_out ? *kept_out : task, rows.seed, target, manifest)
      .write_split(kValidationSplit, rows.train, rows.val);
  std::ranges::sort(manifest.shards, {}, &ShardFile::file);
  target.commit(manifest);
  return manifest;
}

}  // namespace nsa::train
