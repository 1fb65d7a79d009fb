#include "harness/cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/cli/commands/commands.h"

namespace harness::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Parsed {
  bool go_on = false;
  int exit_code = 0;
  Options options;
  std::string out, err;
};

Parsed parse(std::vector<const char*> args) {
  args.insert(args.begin(), "nsa-validate");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Parsed parsed;
  parsed.go_on =
      parse_options(static_cast<int>(args.size()), args.data(), parsed.options, parsed.exit_code);
  parsed.out = testing::internal::GetCapturedStdout();
  parsed.err = testing::internal::GetCapturedStderr();
  return parsed;
}

/// CLI11 2.4 (Ubuntu 24.04) refuses names that 2.3 (Debian 12) accepts.
struct NamesAreSingleWords {
  template <class T>
  void operator()(const base::OptionDoc& option, T Options::*) {
    EXPECT_EQ(option.name.find_first_of(" []{}=:!"), std::string_view::npos) << option.name;
  }
};

TEST(Options, NamesAreSingleWords) {
  NamesAreSingleWords check;
  Options::describe(check);
}

TEST(Options, RunIsTheMainJob) {
  const Parsed parsed =
      parse({"--runbook", "smoke_cpu", "--only", "a,b", "--only", "c", "--set", "a.k=1,2", "--set",
             "b.k=x y", "--format", "md,json", "--out", "dir", "--quiet"});
  ASSERT_TRUE(parsed.go_on);
  EXPECT_EQ(parsed.options.command, "run");
  EXPECT_EQ(parsed.options.runbook, "smoke_cpu");
  EXPECT_THAT(parsed.options.only, ElementsAre("a", "b", "c"));
  EXPECT_THAT(parsed.options.set, ElementsAre("a.k=1,2", "b.k=x y"));  // a value may hold a comma
  EXPECT_THAT(parsed.options.formats, ElementsAre("md", "json"));
  EXPECT_TRUE(parsed.options.quiet);
  EXPECT_EQ(parsed.options.gate, "strict");
  EXPECT_EQ(parsed.options.command_line.front(), "nsa-validate");
  EXPECT_EQ(parsed.options.command_line.size(), 16U);
}

TEST(Options, EveryCommandTakesItsOwn) {
  EXPECT_EQ(parse({"list", "--json"}).options.command, "list");
  EXPECT_EQ(parse({"plan", "--runbook", "x"}).options.runbook, "x");
  EXPECT_EQ(parse({"--dry-run", "--runbook", "x"}).options.command, "plan");
  EXPECT_EQ(parse({"verify", "dir", "--head", "ab"}).options.head, "ab");
  EXPECT_TRUE(parse({"baseline", "promote", "dir", "--reason", "x", "--write"}).options.write);
  EXPECT_EQ(parse({"report", "dir"}).options.target, "dir");
  EXPECT_TRUE(parse({"bundle", "dir", "--in-place"}).options.in_place);
  EXPECT_TRUE(parse({"schema", "runbook", "--page"}).options.page);
  EXPECT_EQ(parse({"doctor"}).options.command, "doctor");
}

TEST(Options, ExplainTakesTheRunAsOtherCommandsDo) {
  const auto explained = [](std::vector<const char*> words) {
    words.insert(words.begin(), "explain");
    const Options options = parse(words).options;
    return options.target + "|" + options.id;
  };
  EXPECT_EQ(explained({"C-a"}), "|C-a");
  EXPECT_EQ(explained({"dir", "C-a"}), "dir|C-a");
  EXPECT_EQ(explained({"C-a", "dir"}), "dir|C-a") << "an id is known by its letter";
  EXPECT_EQ(explained({"dir", "train_text.runs"}), "dir|train_text.runs") << "of a table";
  EXPECT_EQ(explained({"C-dir", "C-a"}), "C-dir|C-a");
  EXPECT_EQ(parse({"explain", "C-a", "--run", "dir"}).exit_code, 2) << "one way to name a run";
}

TEST(Options, UsageErrorsNameWhatIsWrongAndEndWithTwo) {
  const std::vector<std::pair<std::vector<const char*>, const char*>> wrong = {
      {{}, "nsa-validate list"},
      {{"--runbok", "x"}, "--runbok"},
      {{"--runbook"}, "--runbook"},
      {{"--runbook", "x", "--gate", "lenient"}, "lenient"},
      {{"--runbook", "x", "--format", "pdf"}, "pdf"},
      {{"--runbook", "x", "--torch", "/nonexistent"}, "/nonexistent"},
      {{"verify"}, "target"},
      {{"explain"}, "id"},
      {{"explain", "/tmp"}, "explain /tmp: name an id of its report, too"},
      {{"schema"}, "name"},
      {{"list", "verify", "x"}, "list takes no further word, got 'x'"},
      {{"plam"}, "unknown command 'plam'; did you mean 'plan'?"},
      {{"verify", "--haed", "x"}, "unknown option '--haed'; did you mean '--head'?"},
      {{"--runbok=x"}, "unknown option '--runbok=x'; did you mean '--runbook'?"},
      {{"history"}, "history needs one of its commands: import, list, trend"},
      {{"smoke_cpu"}, "'smoke_cpu' is a runbook; name it by --runbook smoke_cpu"},
      {{"plan", "smoke_cpu"}, "'smoke_cpu' is a runbook; name it by --runbook smoke_cpu"},
      {{"--runbook", "x", "--only"}, "--only"},
      {{"--runbook", ""}, "must not be empty"},
      {{"--runbook", "x", "--out", ""}, "must not be empty"},
      {{"verify", "x", "--head", ""}, "must not be empty"},
      {{"--resume", "x", "--out", "y"}, "--out"},
      {{"--resume", "x", "--set", "a.k=1"}, "--set"},
      {{"--resume", "x", "--runbook", "y"}, "--runbook"},
      {{"--resume", "x", "--gate", "advisory"}, "--gate"}};
  for (const auto& [args, named] : wrong) {
    const Parsed parsed = parse(args);
    EXPECT_FALSE(parsed.go_on) << named;
    EXPECT_EQ(parsed.exit_code, 2) << named;
    EXPECT_THAT(parsed.err, HasSubstr(named));
  }
}

TEST(Options, HelpFitsOneScreenAndEndsWithThreeExamples) {
  const Parsed parsed = parse({"--help"});
  EXPECT_FALSE(parsed.go_on);
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_LE(std::count(parsed.out.begin(), parsed.out.end(), '\n'), 50);
  size_t examples = 0;
  for (size_t at = parsed.out.find("Examples:"); at != std::string::npos;
       at = parsed.out.find("\n  nsa-validate ", at + 1))
    ++examples;
  EXPECT_EQ(examples, 4U) << "the heading and three examples";
  for (const char* command :
       {"list", "plan", "doctor", "verify", "explain", "report", "bundle", "schema"}) {
    EXPECT_THAT(parsed.out, HasSubstr(command));
    EXPECT_EQ(parse({command, "--help"}).exit_code, 0) << command;
  }
}

/// The help of a command shows how that very command is called, and what its exit codes mean.
TEST(Options, HelpOfEveryCommandTeachesIt) {
  for (const Command& command : commands()) {
    if (command.run == nullptr || command.help[0] == '\0') continue;
    const std::string name = command.name, group = name.substr(0, name.find(' ')),
                      last = name.substr(name.rfind(' ') + 1);
    const std::vector<const char*> words = group == last
                                               ? std::vector{last.c_str(), "--help"}
                                               : std::vector{group.c_str(), last.c_str(), "--help"};
    const std::string call = "\n  nsa-validate " + group;
    const Parsed parsed = parse(words);
    EXPECT_EQ(parsed.exit_code, 0) << call;
    const size_t examples = parsed.out.find("Examples:");
    ASSERT_NE(examples, std::string::npos) << parsed.out;
    EXPECT_THAT(parsed.out, HasSubstr("Exit codes: 0")) << call;
    EXPECT_THAT(parsed.out.substr(examples), HasSubstr(call)) << parsed.out;
    EXPECT_THAT(parsed.out.substr(examples), HasSubstr(last)) << call;
    EXPECT_LE(std::count(parsed.out.begin(), parsed.out.end(), '\n'), 40) << call;
  }
}

}  // namespace
}  // namespace harness::cli
