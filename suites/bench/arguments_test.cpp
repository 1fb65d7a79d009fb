#include "suites/bench/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace suites {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A command line, and what is left of it.
struct Line {
  explicit Line(std::vector<std::string> given) : words(std::move(given)) {
    words.insert(words.begin(), "nsa-bench");
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    argc = static_cast<int>(words.size());
  }
  BenchOptions take() { return take_micro_arguments(argc, argv.data()); }
  std::vector<std::string> left() const { return {argv.begin() + 1, argv.begin() + argc}; }
  std::vector<std::string> words;
  std::vector<char*> argv;
  int argc = 0;
};

std::string refusal(const std::vector<std::string>& words) {
  try {
    Line(words).take();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "taken";
}

TEST(Arguments, ASeedIsDigits) {
  const auto seed = [](const std::string& text) { return Line({"--seed", text}).take().seed; };
  EXPECT_EQ(seed("0"), 0u);
  EXPECT_EQ(seed("20250216"), 20250216u);
  EXPECT_EQ(seed("18446744073709551615"), UINT64_MAX);
}

TEST(Arguments, RefusesInvalidSeedWithValueAndRemedy) {
  for (const char* odd : {"", "-1", "+1", " 1", "1 ", "word", "7x", "0x10", "1.5", "1e3",
                          "18446744073709551616", "-18446744073709551615"})
    EXPECT_EQ(refusal({"--seed", odd}), "--seed must be a whole number from 0 to 2^64 - 1, got '" +
                                            std::string(odd) + "'; leave it out for 20250216");
}

TEST(Arguments, RemovesOwnArgumentsAndKeepsTheOrderOfOthers) {
  Line line({"--benchmark_filter=x", "--seed", "7", "--benchmark_list_tests", "--device=cuda:1",
             "--v=2"});
  const BenchOptions taken = line.take();
  EXPECT_EQ(taken.seed, 7u);
  EXPECT_EQ(taken.device, "cuda:1");
  EXPECT_THAT(line.left(), ElementsAre("--benchmark_filter=x", "--benchmark_list_tests", "--v=2"));
  EXPECT_EQ(line.argv[static_cast<size_t>(line.argc)], nullptr);
  EXPECT_EQ(Line({}).take().seed, kBenchSeed);
  EXPECT_EQ(Line({}).take().device, "cpu");
  EXPECT_EQ(Line({"--seed=1", "--seed", "2"}).take().seed, 2u) << "the last one counts";
}

TEST(Arguments, NothingElseIsTaken) {
  EXPECT_EQ(refusal({"--seed"}), "--seed needs a value behind it");
  EXPECT_EQ(refusal({"--device"}), "--device needs a value behind it");
  EXPECT_THAT(refusal({"--seed="}), HasSubstr("got ''"));
  EXPECT_THAT(refusal({"target"}), HasSubstr("unknown argument 'target'; known: the commands"));
  EXPECT_THAT(refusal({"--seeds", "7"}), HasSubstr("unknown argument '--seeds'"));
  EXPECT_THAT(refusal({"-v"}), HasSubstr("unknown argument"));
  EXPECT_THAT(refusal({"--benchmark_filter=\x1b[31m"}), HasSubstr("unknown argument"))
      << "the library would print it as it is";
}

}  // namespace
}  // namespace suites
