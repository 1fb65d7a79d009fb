#include "nsa/train/data/token_source.h"

#include <algorithm>
#include <vector>

#include "nsa/program/input_error.h"
#include "nsa/train/data/corpus.h"
#include "nsa/train/data/counter_random.h"

namespace nsa::train {
namespace {

std::string describe_corpus(const Corpus& corpus, const std::string& split) {
  return corpus.manifest().name + ", " + std::to_string(corpus.size()) + " " + split +
         " tokens, manifest sha256 " + corpus.manifest_sha256();
}

class CorpusSource : public TokenSource {
 public:
  CorpusSource(Corpus corpus, std::string split, uint64_t seed)
      : corpus_(std::move(corpus)), split_(std::move(split)), seed_(seed) {}

  void read_row(int64_t row, std::span<uint8_t> out) const override {
    corpus_.read(row_position(seed_, row, corpus_.size(), static_cast<int64_t>(out.size())), out);
  }
  bool is_real() const override { return true; }
  std::string describe() const override { return describe_corpus(corpus_, split_); }

 private:
  Corpus corpus_;
  std::string split_;
  uint64_t seed_;
};

/// Whole rows of a task: random ones to train on, those of another split one after the other.
class TaskSource : public TokenSource {
 public:
  TaskSource(Corpus tokens, Corpus answers, std::string split, uint64_t seed)
      : tokens_(std::move(tokens)),
        answers_(std::move(answers)),
        split_(std::move(split)),
        seed_(seed),
        width_(tokens_.manifest().row_tokens),
        rows_(tokens_.size() / width_),
        answers_per_row_(count_answers()) {}

  void read_row(int64_t row, std::span<uint8_t> out) const override {
    const int64_t chosen =
        split_ == kTrainSplit
            ? static_cast<int64_t>(below(draw_bits(seed_, row, 0), static_cast<uint64_t>(rows_)))
            : row % rows_;
    const auto width = static_cast<size_t>(width_);
    tokens_.read(chosen * width_, out.first(width));
    if (out.size() > width) answers_.read(chosen * width_, out.subspan(width));
  }
  bool is_real() const override { return true; }
  std::string describe() const override { return describe_corpus(tokens_, split_); }
  int64_t answers_per_row() const override { return answers_per_row_; }

 private:
  /// Answers of a row, the same number in all; the first token of a row is no target.
  int64_t count_answers() const {
    std::vector<uint8_t> answers(static_cast<size_t>(width_));
    int64_t of_all = -1;
    for (int64_t row = 0; row < rows_; ++row) {
      answers_.read(row * width_, answers);
      const int64_t here = width_ - std::ranges::count(answers, uint8_t{0});
      const bool fits = answers.front() == 0 && here > 0 && (of_all < 0 || here == of_all);
      if (!fits)
        throw InputError("corpus \"" + tokens_.manifest().name + "\": row " + std::to_string(row) +
                         " of split " + split_ +
                         " must have as many answers as the others, at least one, none of them at "
                         "the first place; make the corpus again (nsa-data --task)");
      of_all = here;
    }
    return of_all;
  }

  Corpus tokens_, answers_;
  std::string split_;
  uint64_t seed_;
  int64_t width_, rows_, answers_per_row_;
};

class SyntheticSource : public TokenSource {
 public:
  SyntheticSource(int64_t vocab, uint64_t seed) : vocab_(vocab), seed_(seed) {}

  void read_row(int64_t row, std::span<uint8_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<uint8_t>(below(draw_bits(seed_, row, i), static_cast<uint64_t>(vocab_)));
  }
  bool is_real() const override { return false; }
  std::string describe() const override {
    return "synthetic: fresh uniform random tokens, vocabulary " + std::to_string(vocab_);
  }

 private:
  int64_t vocab_;
  uint64_t seed_;
};

std::unique_ptr<TokenSource> open_task(Corpus tokens, const std::filesystem::path& dir,
                                       const std::string& name, uint64_t seed, int64_t row_tokens,
                                       const std::string& split) {
  const int64_t width = tokens.manifest().row_tokens;
  if (width != row_tokens)
    throw InputError("corpus \"" + name + "\" at " + dir.string() + " holds rows of " +
                     std::to_string(width - 1) + " tokens and one more, asked for were " +
                     std::to_string(row_tokens - 1) + "; give --seq-len " +
                     std::to_string(width - 1));
  Corpus answers = Corpus::open(dir, name, split + kAnswersSplit);
  if (answers.size() != tokens.size() || tokens.size() % width != 0)
    throw InputError("corpus \"" + name + "\" at " + dir.string() + " has " +
                     std::to_string(tokens.size()) + " tokens and " +
                     std::to_string(answers.size()) + " places of answers in split " + split +
                     ", both must be as many whole rows of " + std::to_string(width) +
                     "; make the corpus again (nsa-data --task)");
  return std::make_unique<TaskSource>(std::move(tokens), std::move(answers), split, seed);
}

}  // namespace

int64_t row_position(uint64_t seed, int64_t row, int64_t size, int64_t row_tokens) {
  return static_cast<int64_t>(
      below(draw_bits(seed, row, 0), static_cast<uint64_t>(size - row_tokens + 1)));
}

std::unique_ptr<TokenSource> open_corpus_source(const std::filesystem::path& dir,
                                                const std::string& name, uint64_t seed,
                                                int64_t row_tokens, int64_t rows_per_batch,
                                                const std::string& split) {
  Corpus corpus = Corpus::open(dir, name, split);
  if (corpus.manifest().row_tokens > 0)
    return open_task(std::move(corpus), dir, name, seed, row_tokens, split);
  if (corpus.size() < row_tokens * rows_per_batch)
    throw InputError("corpus \"" + name + "\" at " + dir.string() + " has " +
                     std::to_string(corpus.size()) + " " + split + " tokens, one batch needs " +
                     std::to_string(row_tokens * rows_per_batch) +
                     "; use a smaller --batch or --seq-len, or a larger corpus");
  return std::make_unique<CorpusSource>(std::move(corpus), split, seed);
}

std::unique_ptr<TokenSource> make_synthetic_source(int64_t vocab, uint64_t seed) {
  if (vocab < 1 || vocab > 256)
    throw InputError("the synthetic vocabulary must be in 1..256, got " + std::to_string(vocab));
  return std::make_unique<SyntheticSource>(vocab, seed);
}

}  // namespace nsa::train
