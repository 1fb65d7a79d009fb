#pragma once
#include <filesystem>
#include <string>

#include "nsa/train/data/manifest.h"
#include "nsa/train/tasks/task.h"

namespace nsa::train {

struct TaskRows {
  int64_t train = 20000;  ///< rows to train on
  int64_t val = 500;      ///< rows that are kept out
  uint64_t seed = 1;
};

/// Writes the rows of a task into `dir` as a corpus that the trainer reads: shards of tokens and,
/// as long, shards of answers. Kept-out rows are behind the others in the order in
/// which the seed makes them, so no row is in both; `kept_out`: the
/// task that they are of, with rows of the same length, where it is another one. An earlier corpus
/// there is replaced when the new one is complete. Throws InputError for no rows and as
/// CorpusTarget does.
Manifest write_task_corpus(const Task& task, const TaskRows& rows, const std::filesystem::path& dir,
                           const std::string& name, const Task* kept_out = nullptr);

}  // namespace nsa::train
