// How one phase comes to its record: decision, needs, retries, stages, cases without an answer.
#include "harness/engine/phase_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/engine/testing.h"

namespace harness {
namespace {

using testing::HasSubstr;

TEST(PhaseRunner, CasesThatAWorkerCannotDecideDeferThePhaseOrMakeItPartial) {
  FakeRun run("undecided");
  const nlohmann::json deferred = {{"undecided", "deferred"}, {"why", "CUPTI_BUSY: by pid 7"}};
  const nlohmann::json partial = {{"undecided", "partial"}, {"why", "PROFILE_DROPPED: 3 records"}};
  const auto add = [&](const std::string& id, const nlohmann::json& a, const nlohmann::json& b) {
    PlannedPhase& phase = run.add(id, "normal");
    phase.cases[0].args = a;
    phase.cases[1].args = b;
  };
  add("none", deferred, deferred);
  add("some", nlohmann::json::object(), deferred);
  add("lost", partial, partial);
  add("bare", {{"undecided", "deferred"}, {"why", "no cause"}}, nlohmann::json::object());
  add("odd", {{"undecided", "postponed"}, {"why", "X: y"}}, nlohmann::json::object());
  add("equal", {{"fail", "NO_CONTRAST: both arms ran gather"}}, nlohmann::json::object());
  add("broken", {{"fail", "out of memory"}}, nlohmann::json::object());
  run.add("below", "normal").needs = {"none"};
  run.go();
  EXPECT_EQ(run.end_of("equal"), "FAILED NO_CONTRAST");
  EXPECT_EQ(run.record("equal").reason, "a: both arms ran gather");
  EXPECT_EQ(run.end_of("broken"), "COMPLETED") << "its figures have no value, which decides";
  EXPECT_EQ(run.end_of("none"), "DEFERRED CUPTI_BUSY");
  EXPECT_EQ(run.record("none").reason, "a: by pid 7");
  EXPECT_EQ(run.end_of("some"), "PARTIAL CUPTI_BUSY");
  EXPECT_EQ(run.end_of("lost"), "PARTIAL PROFILE_DROPPED");
  EXPECT_EQ(run.end_of("bare"), "FAILED GARBAGE");
  EXPECT_EQ(run.end_of("odd"), "FAILED GARBAGE");
  EXPECT_EQ(run.end_of("below"), "NOT_RUN UPSTREAM");
}

TEST(PhaseRunner, WhatThePlanDecidedIsRecorded) {
  FakeRun run("decisions");
  run.add("deferred", "normal").decision = Decision::kDefer;
  run.plan.phases.back().cause = "REQUIREMENT";
  run.plan.phases.back().reason = "gpu.count >= 1 does not hold: | `x` <script>\n\x1b[31m";
  run.add("failed", "normal").decision = Decision::kFail;
  run.add("skipped", "normal").decision = Decision::kSkip;
  run.plan.phases.back().cause = "SKIPPED";
  run.add("below", "normal").needs = {"deferred"};
  run.add("runs", "normal").decision = Decision::kRunWithDeviation;
  run.go();
  EXPECT_EQ(run.end_of("deferred"), "DEFERRED REQUIREMENT");
  EXPECT_EQ(run.record("deferred").reason, run.plan.phases[0].reason);
  EXPECT_EQ(run.end_of("failed"), "FAILED");
  EXPECT_EQ(run.end_of("skipped"), "NOT_RUN SKIPPED");
  EXPECT_EQ(run.end_of("below"), "NOT_RUN UPSTREAM");
  EXPECT_EQ(run.record("below").reason, "needs deferred, which is DEFERRED (REQUIREMENT)");
  EXPECT_EQ(run.end_of("runs"), "COMPLETED");
}

TEST(PhaseRunner, APhaseThatNeedsCriteriaRunsWhenAllOfThemPass) {
  FakeRun run("criteria");
  run.add("before", "normal");
  run.add("closed", "normal").needs_criteria = {"C-bad"};
  run.add("open", "normal").needs_criteria = {"C-good"};
  run.add("below", "normal").needs = {"closed"};
  run.options.unmet_criteria = [&](const PlannedPhase& phase) {
    EXPECT_TRUE(run.has("phases/before/phase.json")) << "judged on what the run has so far";
    const bool bad = phase.needs_criteria.front() == "C-bad";
    return std::string(bad ? "needs C-bad, which is FAIL: 16 misses >= 500" : "");
  };
  run.go();
  EXPECT_EQ(run.end_of("closed"), "NOT_RUN CRITERIA");
  EXPECT_EQ(run.record("closed").reason, "needs C-bad, which is FAIL: 16 misses >= 500");
  EXPECT_EQ(run.end_of("open"), "COMPLETED");
  EXPECT_EQ(run.end_of("below"), "NOT_RUN UPSTREAM");
  FakeRun blind("criteria_blind");
  blind.add("closed", "normal").needs_criteria = {"C-good"};
  blind.go();
  EXPECT_EQ(blind.end_of("closed"), "NOT_RUN CRITERIA") << "an engine that cannot judge runs none";
}

TEST(PhaseRunner, AFailedPhaseStopsWhatNeedsItAndNothingElse) {
  FakeRun run("needs");
  run.add("bad", "segv");
  run.add("below", "normal").needs = {"bad"};
  run.add("beside", "normal");
  run.go();
  EXPECT_EQ(run.end_of("bad"), "FAILED SIGNAL");
  EXPECT_THAT(run.record("bad").reason, HasSubstr("g01: ended by SIGSEGV"));
  EXPECT_EQ(run.end_of("below"), "NOT_RUN UPSTREAM");
  EXPECT_EQ(run.end_of("beside"), "COMPLETED");
}

TEST(PhaseRunner, OneBadGroupFailsThePhaseAndTheOthersAreKept) {
  FakeRun run("groups");
  run.add("bad", "no_done", 3);
  run.add("hangs", "hang", 3);
  run.hangs_soon();
  run.go();
  EXPECT_EQ(run.end_of("bad"), "FAILED NO_DONE");
  EXPECT_EQ(run.record("bad").groups.size(), 3u);
  EXPECT_EQ(run.end_of("hangs"), "FAILED HANG");
  EXPECT_EQ(run.record("hangs").groups.size(), 1u);  // two more hangs would only cost time
  EXPECT_TRUE(run.has("phases/hangs/g01.autopsy.json"));
}

TEST(PhaseRunner, OnlyFaultsOfTheMachineAreRetried) {
  FakeRun run("retries");
  run.add("unlucky", "fail_once").retries = 1;
  run.add("wrong", "exit_3").retries = 3;
  run.go();
  EXPECT_EQ(run.end_of("unlucky"), "COMPLETED") << run.record("unlucky").reason;
  EXPECT_EQ(run.record("unlucky").attempts, 2);
  EXPECT_TRUE(run.has("phases/unlucky/g01.a1.jsonl"));
  EXPECT_THAT(read_bytes(run.file("phases/unlucky/g01.a1.json")), HasSubstr("SIGKILL"));
  EXPECT_GT(run.record("unlucky").seconds, run.record("unlucky").groups[0].seconds);
  EXPECT_EQ(run.end_of("wrong"), "FAILED EXIT_CODE");
  EXPECT_EQ(run.record("wrong").attempts, 1);
}

/// Asks for one more process, then for a second one, then for nothing.
std::vector<PlannedGroup> two_more(const std::filesystem::path& root, const PlannedPhase& phase) {
  auto groups = phase.groups;
  groups.push_back({.id = "g02", .seed = 1});
  if (std::filesystem::exists(root / "phases" / phase.id / "g02.json"))
    groups.push_back({.id = "c01", .seed = 2});
  return groups;
}

TEST(PhaseRunner, RunsTheStagesThatTheEvidenceAsksFor) {
  FakeRun run("stages");
  run.options.asked = two_more;
  run.add("ab", "normal").further = {{.id = "look2", .groups = {}}};
  run.add("plain", "normal");
  run.add("bad", "segv").further = {{.id = "look2", .groups = {}}};
  run.go();
  std::vector<std::string> ids;
  for (const auto& outcome : run.record("ab").groups) ids.push_back(outcome.group);
  EXPECT_THAT(ids, testing::ElementsAre("g01", "g02", "c01"));
  EXPECT_EQ(run.end_of("ab"), "COMPLETED");
  EXPECT_EQ(run.record("plain").groups.size(), 1u) << "a phase without stages is never asked about";
  EXPECT_EQ(run.record("bad").groups.size(), 1u) << "nothing follows a process that failed";
  const auto before = read_bytes(run.file("phases/ab/c01.jsonl"));
  std::filesystem::remove(run.file("phases/ab/phase.json"));
  std::filesystem::remove(run.file("phases/ab/c01.json"));
  run.options.resume = true;
  run.go();
  EXPECT_EQ(run.record("ab").groups.size(), 3u);
  EXPECT_TRUE(run.has("phases/ab/c01.a1.jsonl")) << "a stage that was cut off runs again";
  EXPECT_FALSE(run.has("phases/ab/g02.a1.jsonl"));
}

/// g02 until it was measured, then c01.
std::vector<PlannedGroup> by_evidence(const std::filesystem::path& run, const PlannedPhase&) {
  const auto has = [&](const char* file) {
    return std::filesystem::exists(run / "phases/ab" / file);
  };
  if (!has("g02.jsonl")) return {{.id = "g02", .seed = 2}};
  return {{.id = "g02", .seed = 2}, {.id = "c01", .seed = 3}};
}

/// Its evidence would ask for the next stage, and is then measured again with another result.
TEST(PhaseRunner, AProcessThatWasCutOffAsksForNoFurtherStage) {
  FakeRun run("cut_stage");
  std::vector<bool> had_g02;
  run.options.asked = [&](const std::filesystem::path& dir, const PlannedPhase& phase) {
    had_g02.push_back(std::filesystem::exists(dir / "phases/ab/g02.jsonl"));
    return by_evidence(dir, phase);
  };
  run.add("ab", "normal").further = {{.id = "look2", .groups = {{.id = "g02", .seed = 2}}},
                                     {.id = "confirm", .groups = {{.id = "c01", .seed = 3}}}};
  run.go();
  ASSERT_EQ(run.record("ab").groups.size(), 3u);
  for (const char* file : {"phase.json", "g02.json", "c01.json", "c01.jsonl", "c01.err"})
    std::filesystem::remove(run.file(std::string("phases/ab/") + file));
  had_g02.clear();
  run.options.resume = true;
  run.go();
  EXPECT_THAT(had_g02, testing::ElementsAre(false, true, true));
  EXPECT_EQ(run.end_of("ab"), "COMPLETED");
  EXPECT_TRUE(run.has("phases/ab/g02.a1.jsonl"));
}

TEST(PhaseRunner, TheRecordTellsWhatEveryProcessTook) {
  FakeRun run("record");
  run.add("two", "normal", 2);
  run.go();
  const PhaseRecord record = run.record("two");
  ASSERT_EQ(record.groups.size(), 2u);
  EXPECT_DOUBLE_EQ(record.seconds, record.groups[0].seconds + record.groups[1].seconds);
  EXPECT_GT(record.groups[0].seconds, 0);
  EXPECT_GT(record.groups[0].lines, 2);
}

TEST(PhaseRunner, APhaseWithoutAProcessIsNoPass) {
  FakeRun run("empty");
  run.add("none", "normal", 0);
  run.go();
  EXPECT_EQ(run.end_of("none"), "FAILED NO_TESTS");
}

TEST(PhaseRunner, ANeedThatThePlanLacksIsNamed) {
  FakeRun run("lacks");
  run.add("below", "normal").needs = {"nobody"};
  run.go();
  EXPECT_EQ(run.record("below").reason, "needs nobody, which is not in the plan");
}

/// As often as the machine failed and no more, over all starts of the engine.
TEST(PhaseRunner, RetriesEndWithTheLastOneAllowed) {
  FakeRun run("worn_out");
  run.add("unlucky", "killed").retries = 2;
  run.go();
  EXPECT_EQ(run.end_of("unlucky"), "FAILED SIGNAL");
  EXPECT_EQ(run.record("unlucky").attempts, 3);
  EXPECT_TRUE(run.has("phases/unlucky/g01.a2.json"));
  EXPECT_FALSE(run.has("phases/unlucky/g01.a3.json"));
}

}  // namespace
}  // namespace harness
