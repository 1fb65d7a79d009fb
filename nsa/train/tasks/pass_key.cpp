#include "nsa/train/tasks/pass_key.h"

#include <algorithm>
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
    require_size(filler_bytes() >= 0, kPassKey, "seq_len",
                 ">= " + std::to_string(sizes.seq_len - filler_bytes()), sizes.seq_len);
  }

  int64_t row_tokens() const override { return sizes_.seq_len + 1; }

  std::string describe() const override {
    return "pass-key retrieval (arXiv 2305.16300), " + std::to_string(sizes_.digits) + " digits, " +
           std::to_string(sizes_.seq_len) + " tokens, depth " +
           (sizes_.depth_pct < 0 ? "random" : std::to_string(sizes_.depth_pct) + " %");
  }

  void make_row(uint64_t seed, int64_t row, std::span<uint8_t> tokens,
                std::span<uint8_t> answers) const override {
    RowRandom random(seed, row);
    std::string number;
    for (int64_t i = 0; i < sizes_.digits; ++i) number += static_cast<char>('0' + random.below(10));
    const int64_t before = sizes_.depth_pct < 0 ? random.below(filler_bytes() + 1)
                                                : filler_bytes() * sizes_.depth_pct / 100;
    const std::string text = std::string(kOpening) + filler(before) + pass_key_statement(number) +
                             filler(filler_bytes() - before) + std::string(kQuestion) + number;
    std::ranges::copy(text, tokens.begin());
    std::ranges::fill(answers, uint8_t{0});
    std::ranges::copy(number, answers.last(number.size()).begin());
  }

 private:
  /// Of the text around the statement.
  int64_t filler_bytes() const {
    const std::string number(static_cast<size_t>(sizes_.digits), '0');
    return row_tokens() - static_cast<int64_t>(kOpening.size() + pass_key_statement(number).size() +
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
