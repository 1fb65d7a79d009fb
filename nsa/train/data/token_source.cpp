#include "nsa/train/data/token_source.h"

#include "nsa/program/input_error.h"
#include "nsa/train/data/corpus.h"

namespace nsa::train {
namespace {

/// SplitMix64's output function: a bijection of 64 bits in which every input bit moves about half
/// of the output bits.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A random 64-bit number for (seed, row, index); counters instead of a state make any position
/// reproducible.
uint64_t draw(uint64_t seed, int64_t row, uint64_t index) {
  return mix(mix(mix(seed) ^ static_cast<uint64_t>(row)) ^ index);
}

/// Uniform in [0, bound) from 64 random bits; the bias is below bound / 2^64.
uint64_t below(uint64_t bits, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

class CorpusSource : public TokenSource {
 public:
  CorpusSource(Corpus corpus, std::string split, uint64_t seed)
      : corpus_(std::move(corpus)), split_(std::move(split)), seed_(seed) {}

  void read_row(int64_t row, std::span<uint8_t> out) const override {
    corpus_.read(row_position(seed_, row, corpus_.size(), static_cast<int64_t>(out.size())), out);
  }
  bool is_real() const override { return true; }
  std::string describe() const override {
    return corpus_.manifest().name + ", " + std::to_string(corpus_.size()) + " " + split_ +
           " tokens, manifest sha256 " + corpus_.manifest_sha256();
  }

 private:
  Corpus corpus_;
  std::string split_;
  uint64_t seed_;
};

class SyntheticSource : public TokenSource {
 public:
  SyntheticSource(int64_t vocab, uint64_t seed) : vocab_(vocab), seed_(seed) {}

  void read_row(int64_t row, std::span<uint8_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<uint8_t>(below(draw(seed_, row, i), static_cast<uint64_t>(vocab_)));
  }
  bool is_real() const override { return false; }
  std::string describe() const override {
    return "synthetic: fresh uniform random tokens, vocabulary " + std::to_string(vocab_);
  }

 private:
  int64_t vocab_;
  uint64_t seed_;
};

}  // namespace

int64_t row_position(uint64_t seed, int64_t row, int64_t size, int64_t row_tokens) {
  return static_cast<int64_t>(
      below(draw(seed, row, 0), static_cast<uint64_t>(size - row_tokens + 1)));
}

std::unique_ptr<TokenSource> open_corpus_source(const std::filesystem::path& dir,
                                                const std::string& name, uint64_t seed,
                                                int64_t row_tokens, int64_t rows_per_batch,
                                                const std::string& split) {
  Corpus corpus = Corpus::open(dir, name, split);
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
