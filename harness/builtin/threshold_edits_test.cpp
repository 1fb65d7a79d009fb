#include "harness/builtin/threshold_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "harness/builtin/builtins.h"
#include "harness/builtin/run_alone.h"
#include "harness/evidence/temp_dir.h"
#include "harness/provenance/capture.h"

namespace harness {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kBook = R"(// a comment
{"schema": "nsa-runbook/1", "name": "b", "phases": [{"id": "ab", "run": "nsa-worker:x",
 "processes": 10, "criteria": [{"id": "C-a", "metric": "ab.x_ms", "op": "<=", "value": 5, "unit":
 "ms", "severity": "blocker", "evidence": "samples", "text": "fast"}]}]})";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kBook;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(RunbookEdits, EveryLooseningIsNamedWithBothValues) {
  struct Row {
    const char *from, *to, *what;
  };
  for (const Row& row :
       {Row{"\"value\": 5", "\"value\": 50", "phase \"ab\": criterion \"C-a\": value"},
        Row{"\"<=\"", "\">=\"", "op"}, Row{"blocker", "info", "severity"},
        Row{"ab.x_ms", "ab.y_ms", "metric"}, Row{"C-a", "C-b", "criterion \"C-a\""},
        Row{"\"processes\": 10", "\"processes\": 2", "phase \"ab\": processes"},
        Row{"\"id\": \"ab\"", "\"id\": \"other\"", "phase \"ab\""},
        Row{"\"run\"", "\"required\": \"no\", \"run\"", "phase \"ab\": required"},
        Row{"\"name\"", "\"device\": \"cuda\", \"name\"", "device"}}) {
    const auto edits = runbook_edits(kBook, with(row.from, row.to));
    ASSERT_THAT(edits, SizeIs(1)) << row.to;
    EXPECT_THAT(edits[0].what, HasSubstr(row.what));
  }
  const auto value = runbook_edits(kBook, with("\"value\": 5", "\"value\": 50"));
  EXPECT_EQ(value[0].before, "5");
  EXPECT_EQ(value[0].after, "50");
}

TEST(RunbookEdits, WordsAndAdditionsAreNoEdits) {
  EXPECT_THAT(runbook_edits(kBook, kBook), IsEmpty());
  EXPECT_THAT(runbook_edits(kBook, with("\"fast\"", "\"quick\"")), IsEmpty());
  EXPECT_THAT(runbook_edits(kBook, with("\"criteria\": [", "\"criteria\": [{\"id\": \"C-new\"}, ")),
              IsEmpty());
}

TEST(RunbookEdits, WhatCannotBeReadOrIsGoneIsAnEdit) {
  EXPECT_THAT(runbook_edits(kBook, std::nullopt), SizeIs(1));
  EXPECT_THAT(runbook_edits(kBook, "{"), SizeIs(1));
  EXPECT_THAT(runbook_edits("{", kBook), SizeIs(1));
  EXPECT_THAT(runbook_edits(kBook, "[]"), SizeIs(1));
  EXPECT_THAT(runbook_edits(kBook, R"({"phases": 7})"), SizeIs(1));
  EXPECT_THAT(runbook_edits(kBook, R"({"phases": [7, {"id": "ab", "criteria": "x"}]})"), SizeIs(3));
}

TEST(LineEdits, PairsOldAndNewAndSaysHowManyMore) {
  const auto edits = line_edits({"-a = 1", "-b = 2", "+a = 9", "+b = 8", "+c = 3"});
  ASSERT_THAT(edits, SizeIs(3));
  EXPECT_EQ(edits[0].before + edits[0].after, "a = 1a = 9");
  EXPECT_EQ(edits[1].before + edits[1].after, "b = 2b = 8");
  EXPECT_EQ(edits[2].before + edits[2].after, "c = 3");
  EXPECT_THAT(line_edits({"-a", "-b", "-c"}, 2).back().what, HasSubstr("1 more"));
}

/// A checkout with one commit and a working tree that edits a tolerance and a threshold.
class EditedCheckout : public testing::Test {
 protected:
  EditedCheckout() {
    put("suites/compare/tolerance.cpp", "eps = 1;\n");
    put("configs/runbooks/b.json", kBook);
    put("nsa/x.cpp", "1\n");
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"init", "-q"},
          {"add", "."},
          {"-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "base"}}) {
      std::vector<std::string> argv = {"git", "-C", dir_.path().string()};
      argv.insert(argv.end(), arguments.begin(), arguments.end());
      EXPECT_TRUE(capture(argv).ok());
    }
  }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((dir_ / path).parent_path());
    std::ofstream(dir_ / path) << text;
  }
  protocol::Transcript run(const nlohmann::json& args) const {
    const TempDir raw;
    return run_alone(raw / "raw.jsonl", args, [&](const BuiltinCall& call, auto& emitter) {
      run_threshold_edits(dir_.path(), call, emitter);
    });
  }
  static size_t failed(const protocol::Transcript& said) {
    size_t count = 0;
    for (const auto& line : said.lines)
      if (const auto* check = std::get_if<protocol::Check>(&line.message))
        count += !check->ok && check->code == "THRESHOLD_EDIT";
    return count;
  }
  const nlohmann::json args_ = {{"base", "HEAD"},
                                {"watched", {"suites/compare/tolerance*", "configs/runbooks/*"}}};
  TempDir dir_;
};

TEST_F(EditedCheckout, EditsFailWithoutAReasonAndAreShownEitherWay) {
  put("suites/compare/tolerance.cpp", "eps = 100;\n");
  put("configs/runbooks/b.json", with("\"value\": 5", "\"value\": 50"));
  put("configs/runbooks/new.json", kBook);
  put("nsa/x.cpp", "2\n");
  auto said = run(args_);
  EXPECT_EQ(failed(said), 2u);
  auto explained = args_;
  explained["reason"] = "fp8";
  said = run(explained);
  EXPECT_EQ(failed(said), 0u);
  const auto* table = find_line<protocol::Table>(said, [](const auto&) { return true; });
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->rows[1],
            nlohmann::json({"suites/compare/tolerance.cpp", "line", "eps = 1;", "eps = 100;"}));
}

TEST_F(EditedCheckout, AGoldenTextDecides) {
  put("suites/compare/tolerance_golden.md", "new\n");
  EXPECT_EQ(failed(run(args_)), 1u);
}

TEST_F(EditedCheckout, NothingEditedIsNoCheckAndACountOfZero) {
  put("nsa/x.cpp", "2\n");
  put("suites/compare/tolerances/README.md", "words decide nothing\n");
  const auto said = run(args_);
  EXPECT_EQ(find_line<protocol::Check>(said, [](const auto&) { return true; }), nullptr);
  const auto* metric = find_line<protocol::Metric>(said, [](const auto&) { return true; });
  ASSERT_NE(metric, nullptr);
  EXPECT_EQ(metric->value, 0);
}

TEST_F(EditedCheckout, WithoutABaseNothingPasses) {
  EXPECT_EQ(run({}).ended.at("all").status, "failed");
  EXPECT_EQ(run({{"base", "nowhere"}}).ended.at("all").status, "failed");
}

}  // namespace
}  // namespace harness
