#include "suites/phases/learning/task_corpus_folder.h"

#include <unistd.h>

#include "nsa/train/checkpoint/checkpoint_store.h"

namespace suites {

TaskCorpusFolder::TaskCorpusFolder(const std::string& name, const nsa::train::Task& task,
                                   const nsa::train::TaskRows& rows,
                                   const nsa::train::Task* kept_out_task)
    : dir_(std::filesystem::temp_directory_path() /
           ("nsa_" + name + "_" + std::to_string(getpid()))) {
  write_task_corpus(task, rows, dir_, name, kept_out_task);
  const auto open = [&](const char* split) {
    return nsa::train::open_corpus_source(dir_, name, rows.seed, task.row_tokens(), 1, split);
  };
  train = open(nsa::train::kTrainSplit);
  kept_out = open(nsa::train::kValidationSplit);
}

TaskCorpusFolder::~TaskCorpusFolder() {
  std::error_code ignored;
  nsa::train::remove_folder(dir_, ignored);
}

}  // namespace suites
