#include "harness/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "harness/engine/testing.h"
#include "harness/protocol/lines.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

template <class E>
std::string text_of(FakeRun& run) {
  try {
    run.go();
  } catch (const E& e) {
    return e.what();
  }
  return "no such error";
}

TEST(Engine, LeavesTheFolderOfTheContract) {
  FakeRun run("layout");
  run.add("one", "normal", 2);
  const auto report = run.go();
  EXPECT_EQ(report.signal, 0);
  ASSERT_EQ(report.phases.size(), 1u);
  EXPECT_EQ(run.end_of("one"), "COMPLETED") << run.record("one").reason;
  for (const auto* path :
       {"run.json", "runbook.json", "kinds.json", "plan.json", "environment.json",
        "phases/one/phase.json", "phases/one/g01.jsonl", "phases/one/g02.jsonl",
        "phases/one/g01.out", "phases/one/g01.err", "phases/one/g01.json", "phases/one/out"})
    EXPECT_TRUE(run.has(path)) << path;
  const auto info = read_json<RunInfo>(read_bytes(run.file("run.json")), "run.json");
  EXPECT_TRUE(info.id.starts_with("fake-2")) << info.id;
  EXPECT_EQ(info.runbook_sha256.size(), 64u);
  EXPECT_EQ(run.record("one").attempts, 1);
  EXPECT_EQ(run.observer.beats, 12);
}

TEST(Engine, GroupsGetTheirOwnSeeds) {
  FakeRun run("seeds");
  run.add("one", "normal", 2);
  run.go();
  const auto seed = [&](const std::string& group) {
    for (const auto& line :
         protocol::read_transcript(read_bytes(run.file("phases/one/" + group + ".jsonl")), {})
             .lines)
      if (const auto* metric = std::get_if<protocol::Metric>(&line.message)) return metric->value;
    return nlohmann::json();
  };
  EXPECT_EQ(seed("g01"), 10);
  EXPECT_EQ(seed("g02"), 20);
}

TEST(Engine, CasesThatAWorkerCannotDecideDeferThePhaseOrMakeItPartial) {
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
  run.add("below", "normal").needs = {"none"};
  run.go();
  EXPECT_EQ(run.end_of("none"), "DEFERRED CUPTI_BUSY");
  EXPECT_EQ(run.record("none").reason, "a: by pid 7");
  EXPECT_EQ(run.end_of("some"), "PARTIAL CUPTI_BUSY");
  EXPECT_EQ(run.end_of("lost"), "PARTIAL PROFILE_DROPPED");
  EXPECT_EQ(run.end_of("bare"), "FAILED GARBAGE");
  EXPECT_EQ(run.end_of("odd"), "FAILED GARBAGE");
  EXPECT_EQ(run.end_of("below"), "NOT_RUN UPSTREAM");
}

TEST(Engine, WhatThePlanDecidedIsRecorded) {
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

TEST(Engine, APhaseThatNeedsCriteriaRunsWhenAllOfThemPass) {
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

TEST(Engine, AFailedPhaseStopsWhatNeedsItAndNothingElse) {
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

TEST(Engine, OneBadGroupFailsThePhaseAndTheOthersAreKept) {
  FakeRun run("groups");
  run.add("bad", "no_done", 3);
  run.add("hangs", "hang", 3);
  run.go();
  EXPECT_EQ(run.end_of("bad"), "FAILED NO_DONE");
  EXPECT_EQ(run.record("bad").groups.size(), 3u);
  EXPECT_EQ(run.end_of("hangs"), "FAILED HANG");
  EXPECT_EQ(run.record("hangs").groups.size(), 1u);  // two more hangs would only cost time
  EXPECT_TRUE(run.has("phases/hangs/g01.autopsy.json"));
}

TEST(Engine, OnlyFaultsOfTheMachineAreRetried) {
  FakeRun run("retries");
  run.add("unlucky", "fail_once").retries = 1;
  run.add("wrong", "exit_3").retries = 3;
  run.go();
  EXPECT_EQ(run.end_of("unlucky"), "COMPLETED") << run.record("unlucky").reason;
  EXPECT_EQ(run.record("unlucky").attempts, 2);
  EXPECT_TRUE(run.has("phases/unlucky/g01.a1.jsonl"));
  EXPECT_THAT(read_bytes(run.file("phases/unlucky/g01.a1.json")), HasSubstr("SIGKILL"));
  EXPECT_EQ(run.end_of("wrong"), "FAILED EXIT_CODE");
  EXPECT_EQ(run.record("wrong").attempts, 1);
}

TEST(Engine, MissingProgramsAndArtifactsAreNamed) {
  FakeRun run("missing");
  auto& bench = run.add("bench", "normal");
  bench.program = "nsa-bench";
  run.add("artifact", "normal").artifacts = {"trace.json"};
  run.go();
  EXPECT_EQ(run.end_of("bench"), "FAILED NOT_STARTED");
  EXPECT_THAT(run.record("bench").reason, HasSubstr("bin/nsa-bench: No such file or directory"));
  EXPECT_EQ(run.end_of("artifact"), "FAILED MISSING_ARTIFACT");
}

TEST(Engine, BuiltinsSpeakTheProtocolToo) {
  FakeRun run("builtin");
  const auto as_builtin = [&](const std::string& id, Builtin builtin) {
    auto& phase = run.add(id, "");
    phase.program = "builtin";
    phase.kind = id;
    phase.cases = {{.id = "a"}};
    if (builtin) run.builtins[id] = std::move(builtin);
  };
  as_builtin("good", [](const BuiltinCall& call, protocol::Emitter& emitter) {
    emitter.check({.case_id = "a", .id = "env", .ok = fs::exists(call.run_dir / "run.json")});
    emitter.end_case(call.in.cases[0].id);
  });
  as_builtin("lazy", [](const BuiltinCall&, protocol::Emitter&) {});
  as_builtin("throws", [](const BuiltinCall&, protocol::Emitter&) {
    throw std::runtime_error("no git: <script>");
  });
  as_builtin("unknown", nullptr);
  run.go();
  EXPECT_EQ(run.end_of("good"), "COMPLETED");
  EXPECT_THAT(read_bytes(run.file("phases/good/g01.jsonl")), HasSubstr(R"("ok":true)"));
  EXPECT_EQ(run.end_of("lazy"), "FAILED MISSING_CASE");
  EXPECT_EQ(run.end_of("throws"), "FAILED BUILTIN_ERROR");
  EXPECT_EQ(run.record("throws").reason, "g01: no git: <script>");
  EXPECT_EQ(run.end_of("unknown"), "FAILED NOT_STARTED");
}

TEST(Engine, AResidentWorkerIsHeldToTheSameProtocol) {
  FakeRun run("resident");
  run.add("p", "unused", 2);
  std::vector<std::string> results;
  run.options.resident = [&](const std::string& line, const std::filesystem::path& result) {
    const auto in = protocol::parse_case(line);
    results.push_back(result.filename().string());
    protocol::Emitter emitter(result);
    emitter.hello({.program = "nsa-worker", .build_id = "b"});
    emitter.end_case(in.cases[0].id);
    if (in.group == "g01") emitter.end_case(in.cases[1].id);  // g02 leaves a case without an end
    emitter.done();
  };
  run.go();
  EXPECT_THAT(results, testing::ElementsAre("g01.jsonl", "g02.jsonl"));
  const auto groups = run.record("p").groups;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].status, StepStatus::kCompleted);
  EXPECT_EQ(groups[1].status, StepStatus::kFailed);
}

TEST(Engine, GoogleTestProgramsAreIngested) {
  FakeRun run("gtest");
  const auto add = [&](const std::string& id, const std::string& filter) {
    auto& phase = run.add(id, "");
    phase.program = "nsa-tests";
    phase.filter = filter;
    phase.mode = "check";
    phase.cases = {{.id = "a"}};
  };
  add("good", "Good.*");
  add("bad", "Good.*:Bad.*:Off.*");
  add("none", "Nothing.*");
  add("crash", "Good.*:Crash.*");
  run.go();
  EXPECT_EQ(run.end_of("good"), "COMPLETED") << run.record("good").reason;
  EXPECT_EQ(run.end_of("bad"), "COMPLETED") << run.record("bad").reason;
  const auto evidence =
      protocol::read_transcript(read_bytes(run.file("phases/bad/g01.jsonl")), {.cases = {"a"}});
  EXPECT_THAT(evidence.violations, testing::IsEmpty());
  EXPECT_EQ(evidence.ended.at("a").reason, "2 of 4 tests did not pass, first: Bad.Fails");
  EXPECT_THAT(read_bytes(run.file("phases/bad/g01.jsonl")), HasSubstr("ORACLE_MISMATCH"));
  EXPECT_EQ(run.end_of("none"), "FAILED NO_TESTS");
  EXPECT_EQ(run.end_of("crash"), "FAILED SIGNAL");
}

TEST(Engine, LeftoversAreNamedBeforeTheStart) {
  FakeRun run("leftovers");
  run.add("one", "normal");
  fs::create_directories(run.options.out);
  std::ofstream(run.options.out / "STOP") << "1";
  std::ofstream(run.options.out / "old.json") << "1";
  EXPECT_THAT(text_of<ConfigError>(run),
              HasSubstr("is not empty: it holds STOP, old.json; use --resume"));
  EXPECT_FALSE(run.has("phases"));
  run.options.out = "/proc/nothing/here";
  EXPECT_THAT(text_of<Error>(run), HasSubstr("cannot create /proc/nothing/here"));
}

TEST(Engine, OneEngineAFolder) {
  FakeRun run("lock");
  run.add("one", "normal");
  std::string other;
  auto& phase = run.add("inside", "");
  phase.program = "builtin";
  phase.kind = "again";
  run.builtins["again"] = [&](const BuiltinCall& call, protocol::Emitter& emitter) {
    FakeRun second("lock_second");
    second.options.out = run.options.out;
    second.options.resume = true;
    other = text_of<Error>(second);
    for (const auto& one : call.in.cases) emitter.end_case(one.id);
  };
  run.go();
  EXPECT_THAT(other, HasSubstr("another engine works in"));
}

double own_cpu_ms() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

/// What the engine adds to what workers take: processor time of its own with a process a phase, and
/// wall time with none. Both are printed; a busy machine and a slow disk do not decide the first,
/// which is held to the 50 ms that are allowed.
TEST(Engine, CostsLittlePerPhase) {
  constexpr int kPhases = 10;
  FakeRun run("overhead");
  for (int i = 0; i < kPhases; i++) run.add("p" + std::to_string(i), "normal");
  const double before = own_cpu_ms();
  run.go();
  const double cpu_ms = (own_cpu_ms() - before) / kPhases;

  FakeRun alone("overhead_alone");
  for (int i = 0; i < kPhases; i++) alone.add("p" + std::to_string(i), "none");
  alone.options.resident = [](const std::string& line, const std::filesystem::path& result) {
    protocol::Emitter emitter(result);
    emitter.hello({.program = "nsa-worker", .build_id = "b"});
    for (const auto& one : protocol::parse_case(line).cases) emitter.end_case(one.id);
    emitter.done();
  };
  const auto start = std::chrono::steady_clock::now();
  alone.go();
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - start;
  std::printf("engine: %.1f ms of processor time a phase, %.1f ms of wall time without a worker\n",
              cpu_ms, wall.count() / kPhases);
  EXPECT_LT(cpu_ms, 50);
}

/// Asks for one more process, then for a second one, then for nothing.
std::vector<PlannedGroup> two_more(const std::filesystem::path& root, const PlannedPhase& phase) {
  auto groups = phase.groups;
  groups.push_back({.id = "g02", .seed = 1});
  if (std::filesystem::exists(root / "phases" / phase.id / "g02.json"))
    groups.push_back({.id = "c01", .seed = 2});
  return groups;
}

TEST(Engine, RunsTheStagesThatTheEvidenceAsksFor) {
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

}  // namespace
}  // namespace harness
