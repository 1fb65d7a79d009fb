#include "nsa/train/tasks/recall.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "nsa/train/data/counter_random.h"
#include "nsa/train/tasks/require_size.h"

namespace nsa::train {
namespace {

constexpr const char* kRecall = "recall";
constexpr int64_t kMostValues = 256;

/// `count` different ones of first .. first + size - 1.
std::vector<uint8_t> choose_tokens(RowRandom& random, int64_t first, int64_t size, int64_t count) {
  std::vector<uint8_t> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), static_cast<uint8_t>(first));
  for (int64_t i = 0; i < count; ++i)
    std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(i + random.below(size - i))]);
  all.resize(static_cast<size_t>(count));
  return all;
}

class Recall : public Task {
 public:
  explicit Recall(const RecallSizes& sizes) : sizes_(sizes) {
    require_size(sizes.vocab >= 4 && sizes.vocab <= kMostValues, kRecall, "vocab", "in 4..256",
                 sizes.vocab);
    require_size(sizes.pairs >= 1 && sizes.pairs <= sizes.vocab / 2 - 1, kRecall, "pairs",
                 "in 1.." + std::to_string(sizes.vocab / 2 - 1) + ", the keys of this vocabulary",
                 sizes.pairs);
    require_size(sizes.lead >= 0 && sizes.lead % 2 == 0, kRecall, "lead", "even and >= 0",
                 sizes.lead);
    require_size(sizes.gap >= 0 && sizes.gap % 2 == 0, kRecall, "gap", "even and >= 0", sizes.gap);
    require_size(places() >= sizes.pairs, kRecall, "seq_len",
                 ">= " + std::to_string(4 * sizes.pairs + sizes.lead + sizes.gap - 1) +
                     " for these pairs, lead and gap",
                 sizes.seq_len);
    require_size(sizes.least_pairs >= 0 && sizes.least_pairs <= sizes.pairs, kRecall, "least_pairs",
                 "in 0.." + std::to_string(sizes.pairs), sizes.least_pairs);
    require_size(sizes.power > 0, kRecall, "power", "above 0", static_cast<int64_t>(sizes.power));
  }

  int64_t row_tokens() const override { return sizes_.seq_len + 1; }

  std::string describe() const override {
    return "multi-query associative recall (arXiv 2312.04927), " + std::to_string(sizes_.pairs) +
           " pairs, vocabulary " + std::to_string(sizes_.vocab) + ", " +
           std::to_string(sizes_.seq_len) + " tokens, lead " + std::to_string(sizes_.lead) +
           ", gap " + std::to_string(sizes_.gap) + ", power " + std::to_string(sizes_.power) +
           (sizes_.least_pairs > 0
                ? ", from " + std::to_string(sizes_.least_pairs) + " different pairs on"
                : "") +
           (sizes_.random_fill ? ", random fill" : ", fill 0");
  }

  void make_row(uint64_t seed, int64_t row, std::span<uint8_t> tokens,
                std::span<uint8_t> answers) const override {
    RowRandom random(seed, row);
    std::ranges::fill(answers, uint8_t{0});
    for (uint8_t& token : tokens)
      token = sizes_.random_fill ? static_cast<uint8_t>(random.below(sizes_.vocab)) : 0;
    const int64_t half = sizes_.vocab / 2;
    const auto keys = choose_tokens(random, 1, half - 1, sizes_.pairs);
    const auto values = choose_tokens(random, half, sizes_.vocab - half, sizes_.pairs);
    const std::vector<int64_t> places = choose_places(random);
    const int64_t least = sizes_.least_pairs > 0 ? sizes_.least_pairs : sizes_.pairs;
    const auto different =
        static_cast<size_t>(sizes_.pairs - random.below(sizes_.pairs - least + 1));
    for (size_t i = 0; i < keys.size(); ++i) {
      const uint8_t key = keys[i % different], value = values[i % different];
      const auto pair = static_cast<size_t>(sizes_.lead) + 2 * i;
      tokens[pair] = key;
      tokens[pair + 1] = value;
      const auto query = static_cast<size_t>(first_place() + 2 * places[i]);
      tokens[query] = key;
      answers[query + 1] = value;
    }
  }

 private:
  int64_t first_place() const { return sizes_.lead + 2 * sizes_.pairs + sizes_.gap; }
  int64_t places() const { return (row_tokens() - first_place()) / 2; }

  /// Different places, drawn one after the other by their weights: those with the smallest
  /// exponential times of these rates.
  std::vector<int64_t> choose_places(RowRandom& random) const {
    std::vector<std::pair<double, int64_t>> times;
    for (int64_t i = 0; i < places(); ++i)
      times.emplace_back(
          -std::log(random.unit()) * std::pow(static_cast<double>(i + 1), 1 - sizes_.power), i);
    std::ranges::sort(times);
    std::vector<int64_t> chosen;
    for (int64_t i = 0; i < sizes_.pairs; ++i)
      chosen.push_back(times[static_cast<size_t>(i)].second);
    return chosen;
  }

  RecallSizes sizes_;
};

}  // namespace

std::unique_ptr<Task> make_recall(const RecallSizes& sizes) {
  return std::make_unique<Recall>(sizes);
}

}  // namespace nsa::train
