#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "nsa/train/data/token_source.h"
#include "nsa/train/tasks/task.h"
#include "nsa/train/tasks/task_corpus.h"

namespace suites {

/// Rows of a task as a corpus in a temporary folder that is removed with it.
class TaskCorpusFolder {
 public:
  /// `name`: of the folder, unique in the process. `kept_out`: as for write_task_corpus. Throws
  /// InputError as write_task_corpus does.
  TaskCorpusFolder(const std::string& name, const nsa::train::Task& task,
                   const nsa::train::TaskRows& rows, const nsa::train::Task* kept_out = nullptr);
  ~TaskCorpusFolder();
  TaskCorpusFolder(const TaskCorpusFolder&) = delete;
  TaskCorpusFolder& operator=(const TaskCorpusFolder&) = delete;

  std::unique_ptr<nsa::train::TokenSource> train, kept_out;

 private:
  std::filesystem::path dir_;
};

}  // namespace suites
