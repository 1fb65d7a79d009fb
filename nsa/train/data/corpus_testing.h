#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "nsa/program/input_error.h"
#include "nsa/train/data/corpus.h"
#include "nsa/train/data/shard_writer.h"

namespace nsa::train {

/// Makes corpora in dir()/c out of files that it writes.
class CorpusFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("nsa_corpus_folder_test_" + std::to_string(getpid()));
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path corpus() const { return dir_ / "c"; }
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(dir_ / name, std::ios::binary) << bytes;
    return dir_ / name;
  }
  /// All tokens of the corpus.
  std::string text() const {
    const Corpus corpus = Corpus::open(this->corpus(), "c", "train");
    std::vector<uint8_t> tokens(static_cast<size_t>(corpus.size()));
    corpus.read(0, tokens);
    return {tokens.begin(), tokens.end()};
  }
  DocumentCounts make(const std::vector<std::filesystem::path>& files,
                      const std::string& format = "") const {
    DocumentCounts counts;
    write_corpus(files, corpus(), "c", {.shard_tokens = 8, .val_every = 0, .format = format},
                 &counts);
    return counts;
  }
  /// The text of the error of make(); "" for none.
  std::string refusal(const std::vector<std::filesystem::path>& files,
                      const std::string& format = "") const {
    try {
      make(files, format);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  /// Every file of the corpus with its bytes.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(corpus())) {
      std::ifstream in(entry.path(), std::ios::binary);
      found[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
    }
    return found;
  }

  std::filesystem::path dir_;
};

}  // namespace nsa::train
