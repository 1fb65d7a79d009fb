// The run folder: what is there before the first phase, what is set aside, what is refused.
#include "harness/engine/run_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/engine/testing.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::UnorderedElementsAre;

template <class Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "done";
}

class RunDirTest : public testing::Test {
 protected:
  RunDirTest() {
    book_.name = "fake";
    book_.title = "Fake";
    book_.seed = 5;
    options_.environment = {{"build", {{"build_id", "b"}}}};
  }
  void begin(RunDir& dir) const { dir.begin(options_, book_, {}, plan_); }
  std::vector<std::string> names(const fs::path& folder) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder))
      found.push_back(entry.path().filename().string());
    return found;
  }
  void put(const std::string& file, const std::string& text = "x") const {
    fs::create_directories((run_ / file).parent_path());
    write_bytes(run_ / file, text);
  }
  TempDir scratch_;
  fs::path run_ = scratch_ / "run";
  RunOptions options_;
  Runbook book_;
  Plan plan_;
};

TEST_F(RunDirTest, FillsInDefaultsOfANewRun) {
  RunDir dir(run_, false);
  options_.attached = {{"superseded/results.json", "{}"}};
  begin(dir);
  const auto info = read_json<RunInfo>(read_bytes(run_ / "run.json"), "run.json");
  EXPECT_THAT(info.id, MatchesRegex("fake-20[0-9]+T[0-9]+Z"));
  EXPECT_EQ(info.runbook, "fake");
  EXPECT_EQ(info.runbook_title, "Fake");
  EXPECT_EQ(info.seed, 5);
  EXPECT_EQ(info.runbook_sha256.size(), 64u);
  EXPECT_EQ(read_bytes(run_ / "superseded/results.json"), "{}");
  EXPECT_THAT(names(run_),
              UnorderedElementsAre("run.json", "runbook.json", "kinds.json", "plan.json",
                                   "environment.json", "superseded", "phases"));
}

TEST_F(RunDirTest, WhatWasGivenStays) {
  options_.info.id = "mine";
  options_.info.started = "then";
  RunDir dir(run_, false);
  begin(dir);
  const auto info = read_json<RunInfo>(read_bytes(run_ / "run.json"), "run.json");
  EXPECT_EQ(info.id, "mine");
  EXPECT_EQ(info.started, "then");
}

/// run.json marks a run that has begun: without it the folder is begun anew.
TEST_F(RunDirTest, AFolderThatWasCutOffBeforeItBeganIsBegunAgain) {
  {
    RunDir dir(run_, false);
    begin(dir);
  }
  fs::remove(run_ / "run.json");
  book_.seed = 6;
  RunDir dir(run_, true);
  begin(dir);
  EXPECT_EQ(read_json<RunInfo>(read_bytes(run_ / "run.json"), "run.json").seed, 6);
  book_.seed = 7;
  EXPECT_THAT(refusal([&] { begin(dir); }), HasSubstr("runbook.json of"));
}

TEST_F(RunDirTest, LeftoversAreListedInShort) {
  for (const char* name : {"a", "b", "c", "d", "e"}) put(name);
  EXPECT_THAT(refusal([&] { RunDir(run_, false); }), HasSubstr("it holds a, b, c, d, e; use"));
  put("f");
  EXPECT_THAT(refusal([&] { RunDir(run_, false); }),
              HasSubstr("it holds a, b, c, d, e, ... (6 in all); use"));
  EXPECT_EQ(refusal([&] { RunDir(run_, true); }), "done");
  EXPECT_THAT(refusal([&] { RunDir("", false); }), HasSubstr("--out must name a folder"));
  EXPECT_THAT(refusal([&] { RunDir(run_ / "a", false); }), HasSubstr("cannot create"));
}

TEST_F(RunDirTest, AttemptsAreSetAsideUnderTheNextNumber) {
  const RunDir dir(run_, false);
  EXPECT_EQ(dir.set_aside("p", "g01"), 0) << "nothing is there";
  for (const char* name : {"g01.json", "g01.jsonl", "g01.r0.err", "g01.list.out", "g011.json"})
    put(std::string("phases/p/") + name, name);
  EXPECT_EQ(dir.set_aside("p", "g01"), 1);
  EXPECT_EQ(dir.attempts_aside("p", "g01"), 1);
  EXPECT_THAT(names(run_ / "phases/p"),
              UnorderedElementsAre("g01.a1.json", "g01.a1.jsonl", "g01.a1.r0.err",
                                   "g01.a1.list.out", "g011.json"))
      << "another group's files stay";
  EXPECT_EQ(read_bytes(run_ / "phases/p/g01.a1.r0.err"), "g01.r0.err");
  EXPECT_EQ(dir.set_aside("p", "g01"), 0) << "attempts are not set aside again";
  put("phases/p/g01.jsonl");
  put("phases/p/g01.a9.jsonl");
  EXPECT_EQ(dir.set_aside("p", "g01"), 10);
  EXPECT_EQ(dir.attempts_aside("p", "g01"), 10);
}

/// An attempt that is moved in two goes is one attempt.
TEST_F(RunDirTest, SettingAsideGoesOnWhereItWasCutOff) {
  const RunDir dir(run_, false);
  put("phases/p/g01.a1.json");
  put("phases/p/g01.a1.moving");
  put("phases/p/g01.err");
  put("phases/p/g01.jsonl");
  EXPECT_EQ(dir.set_aside("p", "g01"), 1);
  EXPECT_THAT(names(run_ / "phases/p"),
              UnorderedElementsAre("g01.a1.json", "g01.a1.err", "g01.a1.jsonl"));
  put("phases/p/g01.a1.moving");
  EXPECT_EQ(dir.set_aside("p", "g01"), 0) << "all were moved";
  put("phases/p/g01.err");
  EXPECT_EQ(dir.set_aside("p", "g01"), 2);
}

TEST_F(RunDirTest, AttemptsThatWereCutOffTookTheTimeToTheirLastLine) {
  const RunDir dir(run_, false);
  EXPECT_EQ(dir.seconds_aside("p", "g01"), 0) << "nothing is there";
  put("phases/p/g01.jsonl", "{\"t\":3}\n");
  GroupOutcome ended;
  ended.group = "g01", ended.seconds = 2.5;
  dir.write_group_outcome("p", ended);
  EXPECT_EQ(dir.set_aside("p", "g01"), 1);
  put("phases/p/g01.r0.jsonl", "{\"t\":1}\n{\"t\":7.25}\n{\"t\":9");
  put("phases/p/g01.r1.jsonl", "{\"t\":6}\n");
  EXPECT_EQ(dir.set_aside("p", "g01"), 2);
  put("phases/p/g01.jsonl", "no line\n");
  EXPECT_EQ(dir.set_aside("p", "g01"), 3);
  EXPECT_DOUBLE_EQ(dir.seconds_aside("p", "g01"), 2.5 + 7.25);
  EXPECT_EQ(dir.seconds_aside("p", "g02"), 0);
}

TEST_F(RunDirTest, NamesThatOnlyLookLikeAttemptsAreFilesOfTheGroup) {
  const RunDir dir(run_, false);
  for (const char* name : {"g01.ab.jsonl", "g01.a7jsonl", "g01.a"})
    put(std::string("phases/p/") + name);
  EXPECT_EQ(dir.attempts_aside("p", "g01"), 0);
  EXPECT_EQ(dir.set_aside("p", "g01"), 1);
}

TEST_F(RunDirTest, RecordsComeBackAsTheyWereWrittenAndDamagedOnesAreNone) {
  const RunDir dir(run_, false);
  EXPECT_FALSE(dir.phase_record("p"));
  EXPECT_FALSE(dir.group_outcome("p", "g01"));
  PhaseRecord record;
  record.phase = "p";
  record.status = StepStatus::kFailed;
  record.cause = "HANG";
  dir.write_phase_record(record);
  ASSERT_TRUE(dir.phase_record("p"));
  EXPECT_EQ(dir.phase_record("p")->cause, "HANG");
  GroupOutcome outcome;
  outcome.group = "g01";
  outcome.lines = 12;
  dir.write_group_outcome("p", outcome);
  EXPECT_EQ(dir.group_outcome("p", "g01")->lines, 12);
  for (const char* damaged :
       {"", "{\"phase\"", "[]", R"({"phase": "p", "status": "DONE"})", "\xff"}) {
    put("phases/p/phase.json", damaged);
    put("phases/p/g01.json", damaged);
    EXPECT_FALSE(dir.phase_record("p")) << damaged;
    EXPECT_FALSE(dir.group_outcome("p", "g01")) << damaged;
  }
}

/// Processes of one folder are found by what they all share, whatever the folder is called.
TEST_F(RunDirTest, MarkersNameFolderPhaseAndGroup) {
  fs::create_directories(scratch_ / "real");
  fs::create_directory_symlink(scratch_ / "real", scratch_ / "link");
  const RunDir dir(scratch_ / "link", false);
  EXPECT_EQ(dir.root(), fs::canonical(scratch_ / "real"));
  EXPECT_EQ(dir.marker("p", "g01"), dir.marker_prefix() + "p/g01");
  EXPECT_EQ(dir.marker_prefix(), dir.root().string() + "|");
}

}  // namespace
}  // namespace harness
