#include "harness/process/failure_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

using testing::HasSubstr;

GroupOutcome ended_with(int64_t exit_code, const std::string& signal = "") {
  GroupOutcome ended;
  ended.exit_code = exit_code;
  ended.signal = signal;
  return ended;
}

TEST(FailureCause, AnExitOfZeroIsNone) {
  EXPECT_EQ(cause_of_exit(ended_with(0), "none.err", "").cause, "");
  EXPECT_EQ(cause_of_violations({}).cause, "");
}

TEST(FailureCause, OnlyAKillFromOutsideIsTheMachines) {
  const auto killed = cause_of_exit(ended_with(-1, "SIGKILL"), "none.err", "last heartbeat: 3");
  EXPECT_EQ(killed.cause, "SIGNAL");
  EXPECT_EQ(killed.reason, "ended by SIGKILL; last heartbeat: 3");
  EXPECT_TRUE(killed.infrastructure);
  EXPECT_FALSE(cause_of_exit(ended_with(-1, "SIGSEGV"), "none.err", "").infrastructure);
}

TEST(FailureCause, OnlyStatusTwoWithItsWordIsARefusal) {
  const TempDir dir;
  const auto err = dir.path() / "g01.err";
  write_bytes(err, "CONFIG_ERROR: no such switch\n\n");
  EXPECT_EQ(cause_of_exit(ended_with(2), err, "").cause, "CONFIG_ERROR");
  EXPECT_EQ(cause_of_exit(ended_with(3), err, "").cause, "EXIT_CODE");
  EXPECT_EQ(cause_of_exit(ended_with(2), dir.path() / "none.err", "").reason,
            "exit status 2, want 0; it printed nothing; see none.err");
}

TEST(FailureCause, LastWordsAreTheLastLineThatIsNotBlank) {
  const TempDir dir;
  const auto log = dir.path() / "a.err";
  for (const auto& [text, words] : {std::pair{"", ""},
                                    {" \n\t\n", ""},
                                    {"one", "one"},
                                    {"one\ntwo \r\n\n", "two"},
                                    {"one\n\x1b[31mred", "\\x1b[31mred"}}) {
    write_bytes(log, text);
    EXPECT_EQ(last_words(log), words);
  }
  write_bytes(log, std::string(1 << 20, 'x'));
  EXPECT_LT(last_words(log).size(), 400u);
  EXPECT_EQ(last_words(dir.path()), "") << "a folder in the place of a log";
}

TEST(FailureCause, AMissingDoneIsTheCauseUnlessALineIsWrong) {
  const auto cut = cause_of_violations({{"MISSING_CASE", 0, "case a"}, {"NO_DONE", 0, "none"}});
  EXPECT_EQ(cut.cause, "NO_DONE");
  EXPECT_THAT(cut.reason, HasSubstr("(and 1 more); exit status 0 without `done`"));
  const auto wrong = cause_of_violations({{"GARBAGE", 4, "no object"}, {"NO_DONE", 0, "none"}});
  EXPECT_EQ(wrong.cause, "GARBAGE");
  EXPECT_EQ(wrong.reason, "line 4: no object (and 1 more)");
}

}  // namespace
}  // namespace harness
