// One group: what a worker, a builtin and a test program are asked, and what counts as evidence.
#include "harness/engine/group_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "base/protocol/lines.h"
#include "harness/engine/testing.h"
#include "harness/evidence/storage/files.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(GroupRunner, GroupsGetTheirOwnSeeds) {
  FakeRun run("seeds");
  run.add("one", "normal", 2);
  run.go();
  const auto seed = [&](const std::string& group) {
    for (const auto& line :
         base::protocol::read_transcript(read_bytes(run.file("phases/one/" + group + ".jsonl")), {})
             .lines)
      if (const auto* metric = std::get_if<base::protocol::Metric>(&line.message))
        return metric->value;
    return nlohmann::json();
  };
  EXPECT_EQ(seed("g01"), 10);
  EXPECT_EQ(seed("g02"), 20);
}

TEST(GroupRunner, MissingProgramsAndArtifactsAreNamed) {
  FakeRun run("missing");
  auto& bench = run.add("bench", "normal");
  bench.program = "nsa-bench";
  run.add("artifact", "normal").artifacts = {"trace.json"};
  run.go();
  EXPECT_EQ(run.end_of("bench"), "FAILED NOT_STARTED");
  EXPECT_THAT(run.record("bench").reason, HasSubstr("bin/nsa-bench: No such file or directory"));
  EXPECT_EQ(run.end_of("artifact"), "FAILED MISSING_ARTIFACT");
}

/// The programs of a fake run as its build_id.json would name them.
std::map<std::string, std::string> programs_of(const FakeRun& run) {
  const std::string library = base::build_dir() + "/fake_nsa/built/libnsa_fake.so";
  return {{"nsa-worker", sha256_file(run.options.bin_dir / "nsa-worker")},
          {"../lib/libnsa_fake.so", sha256_file(library)}};
}

TEST(GroupRunner, OnlyProgramsAndLibrariesOfTheBuildAreRun) {
  FakeRun good("known");
  good.add("one", "normal");
  good.options.programs = programs_of(good);
  good.go();
  EXPECT_EQ(good.end_of("one"), "COMPLETED") << good.record("one").reason;

  const auto refused = [](const std::string& name, auto change) {
    FakeRun run(name);
    run.add("one", "normal");
    run.options.programs = programs_of(run);
    change(run);
    run.go();
    EXPECT_EQ(run.end_of("one"), "FAILED OTHER_PROGRAM");
    return run.record("one").reason;
  };
  EXPECT_THAT(
      refused("patched", [](FakeRun& run) { run.options.programs->at("nsa-worker") = "0"; }),
      HasSubstr("nsa-worker is not the program of build_id.json"));
  EXPECT_THAT(refused("unnamed", [](FakeRun& run) { run.options.programs->erase("nsa-worker"); }),
              HasSubstr("nsa-worker is not named in build_id.json"));
  EXPECT_THAT(refused("library",
                      [](FakeRun& run) { run.options.programs->erase("../lib/libnsa_fake.so"); }),
              HasSubstr("it mapped a 'libnsa_fake.so' that is not of the build"));
}

TEST(GroupRunner, AnArtifactThatAWorkerNamesIsAFileOfItsFolder) {
  FakeRun run("named");
  const std::vector<std::string> bad = {"none.txt", "../g01.jsonl", "/etc/hostname", "link.txt", "",
                                        "."};
  for (size_t i = 0; i <= bad.size(); ++i)
    run.add("p" + std::to_string(i), "names_artifact").args["artifact"] =
        i < bad.size() ? bad[i] : "real.txt";
  run.go();
  for (size_t i = 0; i < bad.size(); ++i)
    EXPECT_EQ(run.end_of("p" + std::to_string(i)), "FAILED MISSING_ARTIFACT") << bad[i];
  EXPECT_THAT(run.record("p1").reason, HasSubstr("'../g01.jsonl'"));
  const std::string good = "p" + std::to_string(bad.size());
  EXPECT_EQ(run.end_of(good), "COMPLETED") << run.record(good).reason;
}

TEST(GroupRunner, AWorkerThatReportsNoBuildIdIsNotOfThisBuild) {
  FakeRun run("no_id");
  run.add("silent", "normal").args["build_id"] = "";
  run.add("other", "normal").args["build_id"] = "c";  // a deviation, which is reported
  run.go();
  EXPECT_EQ(run.end_of("silent"), "FAILED NO_BUILD_ID");
  EXPECT_EQ(run.end_of("other"), "COMPLETED");
  run.options.build_id = "";
  run.options.out = run.root / "again";
  run.go();
  EXPECT_EQ(run.end_of("silent"), "COMPLETED") << "the engine has no id either";
}

TEST(GroupRunner, BuiltinsSpeakTheProtocolToo) {
  FakeRun run("builtin");
  const auto as_builtin = [&](const std::string& id, Builtin builtin) {
    auto& phase = run.add(id, "");
    phase.program = "builtin";
    phase.kind = id;
    phase.cases = {{.id = "a"}};
    if (builtin) run.builtins[id] = std::move(builtin);
  };
  as_builtin("good", [](const BuiltinCall& call, base::protocol::Emitter& emitter) {
    emitter.check({.case_id = "a", .id = "env", .ok = fs::exists(call.run_dir / "run.json")});
    emitter.end_case(call.in.cases[0].id);
  });
  as_builtin("lazy", [](const BuiltinCall&, base::protocol::Emitter&) {});
  as_builtin("throws", [](const BuiltinCall&, base::protocol::Emitter&) {
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

TEST(GroupRunner, AResidentWorkerIsHeldToTheSameProtocol) {
  FakeRun run("resident");
  run.add("p", "unused", 2);
  std::vector<std::string> results;
  run.options.resident = [&](const std::string& line, const std::filesystem::path& result) {
    const auto in = base::protocol::parse_case(line);
    results.push_back(result.filename().string());
    base::protocol::Emitter emitter(result);
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

TEST(GroupRunner, GoogleTestProgramsAreIngested) {
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
  add("bad_end", "Good.One");
  run.go();
  EXPECT_EQ(run.end_of("good"), "COMPLETED") << run.record("good").reason;
  EXPECT_EQ(run.end_of("bad"), "COMPLETED") << run.record("bad").reason;
  const auto evidence = base::protocol::read_transcript(
      read_bytes(run.file("phases/bad/g01.jsonl")), {.cases = {"a"}});
  EXPECT_THAT(evidence.violations, testing::IsEmpty());
  EXPECT_EQ(evidence.ended.at("a").reason, "2 of 4 tests did not pass, first: Bad.Fails");
  EXPECT_THAT(read_bytes(run.file("phases/bad/g01.jsonl")), HasSubstr("ORACLE_MISMATCH"));
  EXPECT_EQ(run.end_of("none"), "FAILED NO_TESTS");
  EXPECT_EQ(run.end_of("crash"), "FAILED SIGNAL");
  EXPECT_EQ(run.end_of("bad_end"), "FAILED EXIT_CODE");
  EXPECT_THAT(run.record("bad_end").reason, HasSubstr("no test of its report failed"));
}

/// The case line of a group, as a worker reads it.
TEST(GroupRunner, TheCaseLineReportsWhatThePlanReports) {
  FakeRun run("case_line");
  auto& phase = run.add("p", "normal", 2);
  phase.args["first_step_s"] = 7;
  phase.switches = {{"NSA_SEL_RANGES_V2", "0"}};
  phase.cases[1].args = {{"S", 64}};
  std::vector<base::protocol::CaseIn> asked;
  run.options.resident = [&](const std::string& line, const fs::path& result) {
    asked.push_back(base::protocol::parse_case(line));
    base::protocol::Emitter emitter(result);
    emitter.hello({.program = "nsa-worker", .build_id = "b"});
    for (const auto& one : asked.back().cases) emitter.end_case(one.id);
    emitter.done();
  };
  run.go();
  ASSERT_EQ(asked.size(), 2u);
  const base::protocol::CaseIn& in = asked[1];
  EXPECT_EQ(in.phase + " " + in.kind + " " + in.group + " " + in.mode + " " + in.device,
            "p fake g02 time cpu");
  EXPECT_EQ(in.seed, 20);
  EXPECT_EQ(in.args["behaviour"], "normal");
  EXPECT_EQ(in.args["first_step_s"], 7);
  EXPECT_EQ(in.switches, (std::map<std::string, std::string>{{"NSA_SEL_RANGES_V2", "0"}}));
  ASSERT_EQ(in.cases.size(), 2u);
  EXPECT_EQ(in.cases[0].args, nlohmann::json::object());
  EXPECT_EQ(in.cases[1].args, (nlohmann::json{{"S", 64}}));
  EXPECT_EQ(fs::path(in.out), fs::canonical(run.options.out) / "phases/p/out");
}

/// A program that only logs its arguments and its input.
void put_echo(const FakeRun& run, const std::string& program) {
  const fs::path file = run.root / "bin" / program;
  fs::remove(file);
  write_bytes(file, "#!/bin/sh\necho \"asked: $*\"\n");
  fs::permissions(file, fs::perms::owner_all);
}

TEST(GroupRunner, EveryProgramIsAskedInItsOwnWay) {
  FakeRun run("asked");
  for (const char* program : {"nsa-train", "nsa-tests", "nsa-bench"}) put_echo(run, program);
  run.add("train", "normal").program = "nsa-train";
  for (const char* program : {"nsa-tests", "nsa-bench"}) {
    auto& phase = run.add(program, "");
    phase.program = program;
    phase.filter = "Some.*";
    phase.device = "cuda";
  }
  run.go();
  EXPECT_EQ(read_bytes(run.file("phases/train/g01.out")), "asked: --worker\n");
  EXPECT_EQ(run.end_of("train"), "FAILED NO_DONE");
  EXPECT_EQ(read_bytes(run.file("phases/nsa-tests/g01.list.out")),
            "asked: --gtest_list_tests --gtest_filter=Some.*\n");
  EXPECT_THAT(
      read_bytes(run.file("phases/nsa-tests/g01.out")),
      testing::StartsWith("asked: --device cuda --gtest_filter=Some.* --gtest_output=json:"));
  EXPECT_EQ(read_bytes(run.file("phases/nsa-bench/g01.list.out")),
            "asked: --benchmark_list_tests=true --benchmark_filter=Some.*\n");
  EXPECT_THAT(
      read_bytes(run.file("phases/nsa-bench/g01.out")),
      testing::StartsWith("asked: --device cuda --benchmark_filter=Some.* --benchmark_out="));
  for (const char* program : {"nsa-tests", "nsa-bench"}) {
    EXPECT_EQ(run.end_of(program), "FAILED BAD_TEST_JSON") << "a program that leaves no report";
    EXPECT_THAT(run.record(program).reason, HasSubstr("exit status 0 without a report"));
  }
}

/// Evidence of an earlier start counts again only as it was: whole, of the right mode and cases,
/// and of every rank.
TEST(GroupRunner, EvidenceHoldsForThePhaseItIsOfOnly) {
  FakeRun run("holds");
  run.add("p", "normal").program = "nsa-train";
  run.plan.phases[0].args["ranks"] = 2;
  run.go();
  ASSERT_EQ(run.end_of("p"), "COMPLETED") << run.record("p").reason;
  const RunDir dir(run.options.out, /*resume=*/true);
  const GroupRunner groups(run.options, dir, run.builtins, run.observer);
  PlannedPhase phase = run.plan.phases[0];
  EXPECT_TRUE(groups.evidence_holds(phase, "g01"));
  EXPECT_FALSE(groups.evidence_holds(phase, "g02"));
  phase.cases.push_back({.id = "c"});
  EXPECT_FALSE(groups.evidence_holds(phase, "g01")) << "a case has no end";
  phase.cases.pop_back();
  phase.mode = "check";
  EXPECT_FALSE(groups.evidence_holds(phase, "g01")) << "samples of another mode";
  phase.mode = "time";
  fs::remove(run.file("phases/p/g01.r1.jsonl"));
  EXPECT_FALSE(groups.evidence_holds(phase, "g01")) << "a rank is missing";
}

TEST(GroupRunner, AnInterruptedBuiltinIsContinuedAndNoFault) {
  FakeRun run("stopped");
  auto& phase = run.add("stops", "");
  phase.program = "builtin";
  phase.kind = "stops";
  run.builtins["stops"] = [](const BuiltinCall& call, base::protocol::Emitter&) {
    ::raise(SIGTERM);
    EXPECT_EQ(call.stop_signal(), SIGTERM);
    throw std::runtime_error("gave up");
  };
  EXPECT_EQ(run.go().signal, SIGTERM);
  EXPECT_FALSE(run.has("phases/stops/phase.json"));
}

/// It may also return soon and fail the case: that is no result, --resume runs it again.
TEST(GroupRunner, ACaseThatAnInterruptedBuiltinFailsRunsAgain) {
  FakeRun run("fails_case");
  auto& phase = run.add("stops", "");
  phase.program = "builtin";
  phase.kind = "stops";
  phase.cases = {{.id = "one"}};
  int starts = 0;
  run.builtins["stops"] = [&](const BuiltinCall&, base::protocol::Emitter& emitter) {
    if (++starts > 1) return emitter.end_case("one");
    ::raise(SIGTERM);
    emitter.fail_case("one", "interrupted");
  };
  EXPECT_EQ(run.go().signal, SIGTERM);
  EXPECT_FALSE(run.has("phases/stops/phase.json"));
  run.options.resume = true;
  EXPECT_EQ(run.go().signal, 0);
  EXPECT_EQ(run.end_of("stops"), "COMPLETED");
  EXPECT_EQ(starts, 2);
}

}  // namespace
}  // namespace harness
