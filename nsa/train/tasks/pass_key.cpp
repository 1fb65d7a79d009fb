#include "nsa/train/tasks/pass_key.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "nsa/train/data/counter_random.h"
#include "nsa/train/tasks/require_size.h"

namespace nsa::train {
namespace {

constexpr const char* kPassKey = "pass_key";
constexpr std::string_view kOpening = "A pass key is hidden in this text. Remember it. ";
constexpr std::string_view kFiller =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. ";
constexpr std::string_view kQuestion = "What is the pass key? The pass key is ";

std::string pass_key_statement(const std::string& number) {
  return "The pass key is " + number + ". Remember it. " + number + " is the pass key. ";
}

class PassKey : public Task {
 public:
  explicit PassKey(const PassKeySizes& sizes) : sizes_(sizes) {
    require_size(sizes.digits >= 1 && sizes.digits <= 18, kPassKey, "digits", "in 1..18",
                 sizes.digits);
    require_size(sizes.depth_pct >= -1 && sizes.depth_pct <= 100, kPassKey, "depth_pct",
                 "in 0..100, or -1", sizes.depth_pct);
    const int64_t shortest = sizes.seq_len - filler_bytes(row_tokens());
    require_size(sizes.seq_len >= shortest, kPassKey, "seq_len", ">= " + std::to_string(shortest),
                 sizes.seq_len);
    require_size(sizes.least_seq_len == 0 ||
                     (sizes.least_seq_len >= shortest && sizes.least_seq_len <= sizes.seq_len),
                 kPassKey, "least_seq_len",
                 "0 or in " + std::to_string(shortest) + ".." + std::to_string(sizes.seq_len),
                 sizes.least_seq_len);
  }

  int64_t row_tokens() const override { return sizes_.seq_len + 1; }

  std::string describe() const override {
    return "pass-key retrieval (arXiv 2305.16300), " + std::to_string(sizes_.digits) + " digits, " +
           (sizes_.least_seq_len > 0 ? std::to_string(sizes_.least_seq_len) + " to " : "") +
           std::to_string(sizes_.seq_len) + " tokens, depth " +
           (sizes_.depth_pct < 0 ? "random" : std::to_string(sizes_.depth_pct) + " %");
  }

  void make_row(uint64_t seed, int64_t row, std::span<uint8_t> tokens,
                std::span<uint8_t> answers) const override {
    RowRandom random(seed, row);
    std::string number;
    for (int64_t i = 0; i < sizes_.digits; ++i) number += static_cast<char>('0' + random.below(10));
    const int64_t end = length(random), around = filler_bytes(end);
    const int64_t before =
        sizes_.depth_pct < 0 ? random.below(around + 1) : around * sizes_.depth_pct / 100;
    const std::string text = std::string(kOpening) + filler(before) + pass_key_statement(number) +
                             filler(around - before) + std::string(kQuestion) + number;
    std::ranges::copy(text, tokens.begin());
    std::ranges::copy(filler(row_tokens() - end), tokens.begin() + end);
    std::ranges::fill(answers, uint8_t{0});
    std::ranges::copy(number, answers.begin() + end - std::ssize(number));
  }

 private:
  /// Of the text with its answer.
  int64_t length(RowRandom& random) const {
    if (sizes_.least_seq_len == 0) return row_tokens();
    const auto least = static_cast<double>(sizes_.least_seq_len + 1);
    const double ratio = static_cast<double>(row_tokens()) / least;
    return std::min(row_tokens(), static_cast<int64_t>(least * std::pow(ratio, random.unit())));
  }
  /// Around the statement in `length` bytes of text with its answer.
  int64_t filler_bytes(int64_t length) const {
    const std::string number(static_cast<size_t>(sizes_.digits), '0');
    return length - static_cast<int64_t>(kOpening.size() + pass_key_statement(number).size() +
                                         kQuestion.size() + number.size());
  }
  static std::string filler(int64_t bytes) {
    std::string text;
    while (static_cast<int64_t>(text.size()) < bytes) text += kFiller;
    return text.substr(0, static_cast<size_t>(bytes));
  }

  PassKeySizes sizes_;
};

}  // namespace

std::unique_ptr<Task> make_pass_key(const PassKeySizes& sizes) {
  return std::make_unique<PassKey>(sizes);
}

}  // namespace nsa::train
