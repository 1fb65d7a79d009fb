#include "base/options/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace base {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Settings {
  std::string word = "on", file;
  int64_t steps = 4;
  uint64_t seed = 7;
  double rate = 0.5;
  bool quiet = false, fresh = false;
  std::vector<std::string> only, set, rest;
  std::vector<int64_t> sizes;

  template <class Visitor>
  static void describe(Visitor& v) {
    using O = Settings;
    v({.name = "word", .doc = "a word", .choices = "on or off"}, &O::word);
    v({.name = "the_file", .doc = "a file", .must = TextMust::kNotBeEmpty}, &O::file);
    v({.name = "steps", .doc = "steps", .least = 1}, &O::steps);
    v({"seed", "of the data"}, &O::seed);
    v({.name = "rate", .doc = "a rate", .above = 0}, &O::rate);
    v({"quiet", "less"}, &O::quiet);
    v({.name = "fresh", .doc = "anew", .not_with = "quiet"}, &O::fresh);
    v({"only", "some"}, &O::only);
    v({.name = "set", .doc = "values", .form = ListForm::kRepeated}, &O::set);
    v({.name = "sizes", .doc = "sizes", .least = 0}, &O::sizes);
    v({.name = "rest",
       .doc = "words",
       .form = ListForm::kWords,
       .words = 2,
       .positional = true,
       .commands = "take"},
      &O::rest);
    v({.name = "hidden", .doc = "an argument only", .on_command_line = false}, &O::word);
  }
};

/// What a command line gives: the settings, or the message that refuses it.
struct Parsed {
  Settings settings;
  std::string refusal;
};

Parsed parse(std::vector<std::string> words, const std::string& command = "") {
  Parsed parsed;
  CLI::App app;
  declare(app, parsed.settings, command);
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
  } catch (const CLI::ParseError& error) {
    parsed.refusal = error.what();
  }
  return parsed;
}

TEST(CommandLine, FillsTheDescribedMembers) {
  const Settings s =
      parse({"--word", "off", "--the-file", "f", "--steps", "9", "--seed", "3", "--rate", "2.5",
             "--quiet", "--only", "a,b", "--set", "k=1,2", "--set", "j=3", "--sizes", "1,2"})
          .settings;
  EXPECT_EQ(s.word, "off");
  EXPECT_EQ(s.file, "f");
  EXPECT_EQ(s.steps, 9);
  EXPECT_EQ(s.seed, 3u);
  EXPECT_EQ(s.rate, 2.5);
  EXPECT_TRUE(s.quiet);
  EXPECT_THAT(s.only, ElementsAre("a", "b"));
  EXPECT_THAT(s.set, ElementsAre("k=1,2", "j=3"));
  EXPECT_THAT(s.sizes, ElementsAre(1, 2));
  EXPECT_EQ(parse({}).settings.steps, 4);
}

TEST(CommandLine, RefusesWhatTheDescriptionExcludes) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--word", "maybe"}, "maybe not in {on,off}"},
      {{"--the-file", ""}, "must not be empty"},
      {{"--steps", "0"}, "--steps must be >= 1, got 0"},
      {{"--steps", "99999999999999999999"}, "must be a whole number from -2^63 to 2^63 - 1"},
      {{"--seed", "-1"}, "--seed must be a whole number from 0 to 2^64 - 1, got '-1'"},
      {{"--rate", "0"}, "--rate must be > 0, got 0"},
      {{"--rate", "nan"}, "--rate must be > 0, got nan"},
      {{"--sizes", "1,-1"}, "must be >= 0, got -1"},
      {{"--quiet", "--fresh"}, "--fresh"},
      {{"--only", "a", "b"}, "b"},
      {{"--hidden", "x"}, "--hidden"},
      {{"word"}, "word"}};
  for (const auto& [words, text] : wrong)
    EXPECT_THAT(parse(words).refusal, HasSubstr(text)) << words.front();
}

TEST(CommandLine, PositionalWordsBelongToTheirCommand) {
  EXPECT_THAT(parse({"a", "b"}, "take").settings.rest, ElementsAre("a", "b"));
  EXPECT_NE(parse({"a", "b", "c"}, "take").refusal, "");
  EXPECT_NE(parse({"a"}, "leave").refusal, "");
}

TEST(CommandLine, HelpHasDefaultAndPhrase) {
  Settings settings;
  CLI::App app;
  declare(app, settings);
  const std::string help = app.help();
  EXPECT_THAT(help, HasSubstr("--steps INT=4"));
  EXPECT_THAT(help, HasSubstr("--seed UINT=7"));
  EXPECT_THAT(help, HasSubstr("of the data"));
}

}  // namespace
}  // namespace base
