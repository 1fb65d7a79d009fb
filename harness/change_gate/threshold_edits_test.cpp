#include "harness/change_gate/threshold_edits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

// Freed, an argument is changed without a deviation; with another seed, other inputs are tried.
TEST(RunbookEdits, EveryKeyThatMayLoosenCounts) {
  const std::string before = R"({"phases": [{"id": "ab"}]})";
  for (const char* key : {"free", "needs_criteria", "timeout_s", "retries", "artifacts"}) {
    const auto edits =
        runbook_edits(before, R"({"phases": [{"id": "ab", ")" + std::string(key) + R"(": 1}]})");
    ASSERT_EQ(edits.size(), 1u) << key;
    EXPECT_EQ(edits[0].what, "phase \"ab\": " + std::string(key));
  }
  EXPECT_EQ(runbook_edits(before, R"({"seed": 7, "phases": [{"id": "ab"}]})").size(), 1u);
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

/// A change may hold anything: what would exhaust the stack when it is printed is no runbook.
TEST(RunbookEdits, ATextThatNestsTooDeepIsAnEdit) {
  const std::string deep = with("\"run\"", "\"args\": " + std::string(500'000, '[') +
                                               std::string(500'000, ']') + ", \"run\"");
  for (const auto& edits : {runbook_edits(kBook, deep), runbook_edits(deep, kBook)})
    EXPECT_THAT(edits, SizeIs(1));
}

TEST(LineEdits, PairsOldAndNewAndReportsHowManyMore) {
  const auto edits = line_edits({"-a = 1", "-b = 2", "+a = 9", "+b = 8", "+c = 3"});
  ASSERT_THAT(edits, SizeIs(3));
  EXPECT_EQ(edits[0].before + edits[0].after, "a = 1a = 9");
  EXPECT_EQ(edits[1].before + edits[1].after, "b = 2b = 8");
  EXPECT_EQ(edits[2].before + edits[2].after, "c = 3");
  EXPECT_THAT(line_edits({"-a", "-b", "-c"}, 2).back().what, HasSubstr("1 more"));
}

}  // namespace
}  // namespace harness
