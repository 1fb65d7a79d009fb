// Tasks as data: what a row holds, and that the trainer's source reads what was written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "nsa/program/input_error.h"
#include "nsa/train/data/token_source.h"
#include "nsa/train/tasks/pass_key.h"
#include "nsa/train/tasks/recall.h"
#include "nsa/train/tasks/task_corpus.h"

namespace nsa::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Row {
  std::vector<uint8_t> tokens, answers;
  int64_t num_answers() const {
    return std::ranges::count_if(answers, [](uint8_t answer) { return answer != 0; });
  }
};

Row row_of(const Task& task, uint64_t seed, int64_t row) {
  Row made{std::vector<uint8_t>(static_cast<size_t>(task.row_tokens()), 99), {}};
  made.answers = made.tokens;
  task.make_row(seed, row, made.tokens, made.answers);
  return made;
}

template <class Make>
std::string error_of(Make make) {
  try {
    make();
  } catch (const InputError& error) {
    return error.what();
  }
  return "none";
}

TEST(Recall, EveryKeyIsAskedOnceAndItsValueIsTheAnswer) {
  for (const bool random_fill : {false, true}) {
    const RecallSizes sizes{
        .seq_len = 72, .pairs = 8, .vocab = 40, .lead = 8, .gap = 16, .random_fill = random_fill};
    const auto task = make_recall(sizes);
    for (int64_t r = 0; r < 50; ++r) {
      const Row row = row_of(*task, 3, r);
      std::map<uint8_t, uint8_t> value_of;
      for (size_t i = 8; i < 24; i += 2) value_of[row.tokens[i]] = row.tokens[i + 1];
      EXPECT_EQ(value_of.size(), 8u) << "different keys";
      for (const auto& [key, value] : value_of) {
        EXPECT_TRUE(key >= 1 && key < 20);
        EXPECT_TRUE(value >= 20 && value < 40);
      }
      ASSERT_EQ(row.num_answers(), 8);
      std::set<uint8_t> asked;
      for (size_t i = 0; i < row.answers.size(); ++i) {
        if (row.answers[i] == 0) continue;
        EXPECT_GT(i, 24u + 16u) << "behind the gap";
        asked.insert(row.tokens[i - 1]);
        EXPECT_EQ(row.answers[i], value_of.at(row.tokens[i - 1]));
        EXPECT_TRUE(random_fill || row.tokens[i] == 0) << "the text has no answer";
      }
      EXPECT_EQ(asked.size(), 8u);
      if (!random_fill) {
        EXPECT_TRUE(std::ranges::all_of(std::span(row.tokens).subspan(24, 16),
                                        [](uint8_t token) { return token == 0; }));
      }
    }
  }
}

/// Rows to train on may repeat pairs: each number of different ones is drawn, and what is asked
/// stays right.
TEST(Recall, EasierRowsRepeatPairs) {
  const auto task = make_recall({.seq_len = 32, .pairs = 4, .vocab = 32, .least_pairs = 1});
  std::map<size_t, int> rows_with;
  for (int64_t r = 0; r < 200; ++r) {
    const Row row = row_of(*task, 3, r);
    std::map<uint8_t, uint8_t> value_of;
    for (size_t i = 0; i < 8; i += 2) value_of[row.tokens[i]] = row.tokens[i + 1];
    ++rows_with[value_of.size()];
    ASSERT_EQ(row.num_answers(), 4);
    for (size_t i = 8; i < row.answers.size(); ++i) {
      if (row.answers[i] == 0) continue;
      EXPECT_EQ(row.answers[i], value_of.at(row.tokens[i - 1]));
    }
  }
  ASSERT_EQ(rows_with.size(), 4u);
  for (const auto& [different, rows] : rows_with) EXPECT_GT(rows, 30) << different;
  EXPECT_THAT(error_of([] { make_recall({.pairs = 8, .least_pairs = 9}); }),
              HasSubstr("least_pairs must be in 0..8, got 9"));
}

/// Mean place of a query: near the pairs with the published weights, in the middle when all are
/// alike.
TEST(Recall, PlacesHaveTheirWeights) {
  const auto mean = [](double power) {
    const auto task = make_recall({.seq_len = 128, .pairs = 4, .vocab = 64, .power = power});
    double sum = 0;
    for (int64_t r = 0; r < 500; ++r) {
      const Row row = row_of(*task, 1, r);
      for (size_t i = 0; i < row.answers.size(); ++i)
        if (row.answers[i] != 0) sum += static_cast<double>(i - 9) / 2;
    }
    return sum / 2000;
  };
  EXPECT_NEAR(mean(1.0), 29.5, 1.5);
  EXPECT_LT(mean(0.01), 15);
}

TEST(Recall, SizesThatDoNotFitAreNamed) {
  EXPECT_THAT(error_of([] { make_recall({.vocab = 257}); }),
              HasSubstr("vocab must be in 4..256, got 257"));
  EXPECT_THAT(error_of([] { make_recall({.pairs = 20, .vocab = 40}); }),
              HasSubstr("pairs must be in 1..19, the keys of this vocabulary, got 20"));
  EXPECT_THAT(error_of([] { make_recall({.seq_len = 30, .pairs = 8}); }),
              HasSubstr("seq_len must be >= 31 for these pairs, lead and gap, got 30"));
  make_recall({.seq_len = 31, .pairs = 8});
  EXPECT_THAT(error_of([] { make_recall({.gap = 3}); }), HasSubstr("gap must be even"));
}

TEST(PassKey, TheNumberStandsAtItsDepthAndIsTheAnswer) {
  for (const int64_t depth : {0, 50, 100}) {
    const auto task = make_pass_key({.seq_len = 511, .digits = 5, .depth_pct = depth});
    const Row row = row_of(*task, 7, 4);
    const std::string text(row.tokens.begin(), row.tokens.end());
    ASSERT_EQ(text.size(), 512u);
    EXPECT_EQ(row.num_answers(), 5);
    const std::string number = text.substr(507);
    EXPECT_EQ(std::string(row.answers.end() - 5, row.answers.end()), number);
    EXPECT_THAT(text, HasSubstr("The pass key is " + number + ". Remember it. " + number));
    const double place = static_cast<double>(text.find("The pass key is ")) / 512;
    EXPECT_NEAR(place, 0.1 + 0.7 * static_cast<double>(depth) / 100, 0.06);
  }
  const auto task = make_pass_key({.seq_len = 255});
  std::set<size_t> places;
  std::set<std::string> numbers;
  for (int64_t r = 0; r < 20; ++r) {
    const Row row = row_of(*task, 7, r);
    const std::string text(row.tokens.begin(), row.tokens.end());
    places.insert(text.find("The pass key is "));
    numbers.insert(text.substr(251));
  }
  EXPECT_GT(places.size(), 12u);
  EXPECT_GT(numbers.size(), 18u);
  EXPECT_THAT(error_of([] { make_pass_key({.seq_len = 100}); }), HasSubstr("seq_len must be >= "));
}

TEST(PassKey, RowsMayEndWhereItIsDrawn) {
  const auto task = make_pass_key({.seq_len = 1023, .digits = 3, .least_seq_len = 255});
  int64_t short_rows = 0, long_rows = 0;
  for (int64_t r = 0; r < 200; ++r) {
    const Row row = row_of(*task, 7, r);
    ASSERT_EQ(row.num_answers(), 3);
    const auto end = std::ranges::find(row.answers.rbegin(), row.answers.rend(), 0,
                                       [](uint8_t x) { return x == 0 ? 1 : 0; })
                         .base() -
                     row.answers.begin();
    ASSERT_GE(end, 256);
    const std::string text(row.tokens.begin(), row.tokens.end());
    ASSERT_EQ(text.size(), 1024u);
    const std::string number = text.substr(static_cast<size_t>(end) - 3, 3);
    EXPECT_THAT(text, HasSubstr("The pass key is " + number + ". Remember it. " + number));
    EXPECT_EQ(std::string(row.answers.begin() + end - 3, row.answers.begin() + end), number);
    short_rows += end < 512 ? 1 : 0;
    long_rows += end > 900 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(short_rows), 100, 30);  // evenly by the logarithm
  EXPECT_GT(long_rows, 5);
  EXPECT_THAT(error_of([] { make_pass_key({.seq_len = 511, .least_seq_len = 600}); }),
              HasSubstr("least_seq_len must be 0 or in "));
}

class TaskCorpusTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(dir_); }
  void TearDown() override { fs::remove_all(dir_); }
  void write(int64_t train = 40, int64_t val = 10) {
    write_task_corpus(*make_recall({.seq_len = 31, .pairs = 4, .vocab = 32}),
                      {.train = train, .val = val, .seed = 5}, dir_, "recall");
  }
  std::unique_ptr<TokenSource> open(const std::string& split, uint64_t seed = 1,
                                    int64_t row_tokens = 32) {
    return open_corpus_source(dir_, "recall", seed, row_tokens, 1, split);
  }
  static std::vector<uint8_t> read(const TokenSource& source, int64_t row, size_t bytes) {
    std::vector<uint8_t> out(bytes);
    source.read_row(row, out);
    return out;
  }
  fs::path dir_ = fs::temp_directory_path() / ("tasks_test_" + std::to_string(getpid()));
};

TEST_F(TaskCorpusTest, RowsAndAnswersAreReadAsTheyWereMade) {
  write();
  const auto task = make_recall({.seq_len = 31, .pairs = 4, .vocab = 32});
  const auto val = open(kValidationSplit);
  EXPECT_EQ(val->answers_per_row(), 4);
  EXPECT_TRUE(val->is_real());
  EXPECT_THAT(val->describe(), HasSubstr("recall, 320 val tokens, manifest sha256 "));
  for (const int64_t row : {0, 9, 13}) {
    const Row want = row_of(*task, 5, 40 + row % 10);
    std::vector<uint8_t> both = want.tokens;
    both.insert(both.end(), want.answers.begin(), want.answers.end());
    EXPECT_EQ(read(*val, row, 64), both) << "one after the other, then again";
    EXPECT_EQ(read(*val, row, 32), want.tokens) << "tokens alone";
  }
  std::set<std::vector<uint8_t>> made, trained, kept_out;
  for (int64_t row = 0; row < 40; ++row) made.insert(row_of(*task, 5, row).tokens);
  const auto train = open(kTrainSplit);
  for (int64_t row = 0; row < 200; ++row) trained.insert(read(*train, row, 32));
  for (int64_t row = 0; row < 10; ++row) kept_out.insert(read(*val, row, 32));
  EXPECT_TRUE(std::ranges::includes(made, trained));
  EXPECT_GT(trained.size(), 35u);
  for (const auto& row : kept_out) EXPECT_FALSE(trained.contains(row));
  EXPECT_NE(read(*open(kTrainSplit, 2), 0, 32), read(*train, 0, 32)) << "the seed orders the rows";
}

TEST_F(TaskCorpusTest, AnotherLengthAndDamagedAnswersAreRefused) {
  write();
  EXPECT_THAT(error_of([&] { open(kTrainSplit, 1, 33); }), HasSubstr("give --seq-len 31"));
  Manifest manifest = read_manifest(dir_);
  EXPECT_THAT(manifest.task, HasSubstr("4 pairs, vocabulary 32, 31 tokens, lead 0, gap 0"));
  manifest.row_tokens = 16;  // half rows: their answers are no longer alike
  write_manifest(dir_, manifest);
  EXPECT_THAT(error_of([&] { open(kTrainSplit, 1, 16); }), HasSubstr("must have as many answers"));
  write();
  fs::resize_file(dir_ / "val_answers_00000.tokens", 100);
  EXPECT_THAT(error_of([&] { open(kValidationSplit); }), HasSubstr("its manifest lists 320"));
  EXPECT_THAT(error_of([&] { write(40, 0); }), HasSubstr("rows of split val must be in 1.."));
  write(30, 10);  // in the place of the damaged one
  EXPECT_EQ(open(kTrainSplit)->answers_per_row(), 4);
}

}  // namespace
}  // namespace nsa::train
