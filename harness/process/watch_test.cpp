#include "harness/process/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/protocol/case.h"
#include "base/testing/paths.h"
#include "harness/evidence/storage/files.h"
#include "harness/process/os/file_io.h"
#include "harness/process/os/spawn.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Runs fake_worker once in a folder of its own, with limits that make tests short.
struct FakeRun {
  explicit FakeRun(const std::string& behaviour, nlohmann::json args = nlohmann::json::object()) {
    folder = fs::path(testing::TempDir()) / ("watch_" + std::to_string(::getpid())) / behaviour;
    fs::remove_all(folder);
    fs::create_directories(folder / "out");
    in = {.phase = "fake", .kind = "fake", .group = "g01", .seed = 7, .args = std::move(args)};
    in.args["behaviour"] = behaviour;
    in.cases = {{.id = "a"}};
    in.out = folder / "out";
    policy = {.timeout_s = 20,
              .first_step_s = 0.4,
              .stall_floor_s = 0.3,
              .snapshot_s = 0.1,
              .grace_s = 0.2};
  }

  GroupOutcome go() {
    const WorkerSpec spec{.group = "g01",
                          .argv = {program},
                          .env = env,
                          .marker = folder.string(),
                          .input = base::protocol::print_case(in) + "\n",
                          .result = folder / "g01.jsonl",
                          .out = folder / "g01.out",
                          .err = folder / "g01.err",
                          .autopsy = folder / "g01.autopsy.json",
                          .want = {.mode = in.mode, .cases = {"a"}},
                          .stages = stages};
    const auto outcome = run_worker(spec, policy, hooks);
    EXPECT_TRUE(outcome.left.empty());
    EXPECT_TRUE(find_group({.marker = folder.string()}).empty())
        << "a process of the group is left";
    return outcome;
  }

  std::string file(const std::string& name) const { return read_bytes(folder / name); }

  fs::path folder, stages;
  std::string program = base::build_dir() + "/bin/fake_worker";
  base::protocol::CaseIn in;
  std::map<std::string, std::string> env;
  WatchPolicy policy;
  WatchHooks hooks;
};

std::string text(const GroupOutcome& o) {
  return base::protocol::print_line(base::protocol::detail::write_value(o.reason));
}

TEST(Watch, StepsOfAnEarlierProcessAreNoProgress) {
  FakeRun run("normal");
  run.in.args["earlier"] = 50;
  std::vector<int64_t> steps;
  run.hooks.on_beat = [&](const base::protocol::Beat& beat, double) { steps.push_back(beat.step); };
  const auto outcome = run.go();
  EXPECT_EQ(outcome.status, StepStatus::kCompleted) << text(outcome);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(outcome.lines, 8 + 50);
}

TEST(Watch, AGoodWorkerCompletes) {
  FakeRun run("normal");
  int beats = 0;
  run.hooks.on_beat = [&](const base::protocol::Beat&, double) { beats++; };
  const auto outcome = run.go();
  EXPECT_EQ(outcome.status, StepStatus::kCompleted) << text(outcome);
  EXPECT_EQ(outcome.cause, "");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(beats, 3);
  EXPECT_EQ(outcome.lines, 8);
  EXPECT_LT(outcome.seconds, 1);
}

TEST(Watch, EveryBrokenRuleHasItsCause) {
  const std::map<std::string, std::string> want = {{"no_done", "NO_DONE"},
                                                   {"silent", "NO_DONE"},
                                                   {"half_line", "NO_DONE"},
                                                   {"exit_3", "EXIT_CODE"},
                                                   {"remove_log", "EXIT_CODE"},
                                                   {"refuse", "CONFIG_ERROR"},
                                                   {"garbage", "GARBAGE"},
                                                   {"raw_nan", "NON_FINITE"},
                                                   {"forge_time", "BAD_TIME"},
                                                   {"forge_twice", "DUPLICATE_SAMPLE"},
                                                   {"hello_twice", "HELLO_TWICE"},
                                                   {"foreign", "FOREIGN_CASE"},
                                                   {"duplicate", "DUPLICATE_CASE"},
                                                   {"after_done", "AFTER_DONE"},
                                                   {"bad_count", "BAD_COUNT"},
                                                   {"missing_case", "MISSING_CASE"},
                                                   {"segv", "SIGNAL"},
                                                   {"killed", "SIGNAL"},
                                                   {"hang", "HANG"},
                                                   {"hang_at_start", "HANG"},
                                                   {"hang_with_grandchild", "HANG"}};
  for (const auto& [behaviour, cause] : want) {
    FakeRun run(behaviour);
    if (behaviour.starts_with("forge")) run.in.mode = "time";
    const auto outcome = run.go();
    EXPECT_EQ(outcome.status, StepStatus::kFailed) << behaviour;
    EXPECT_EQ(outcome.cause, cause) << behaviour << ": " << text(outcome);
    EXPECT_NE(outcome.reason, "") << behaviour;
    EXPECT_EQ(outcome.infrastructure, behaviour == "killed") << behaviour;
  }
}

TEST(Watch, LastWordsAreTheReason) {
  const auto outcome = FakeRun("refuse").go();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.reason,
            "exit status 2, want 0; its last words: CONFIG_ERROR: \\x1b[31munknown switch NSA_X; "
            "did you mean NSA_Y?; see g01.err");
  EXPECT_THAT(FakeRun("exit_3").go().reason, HasSubstr("it printed nothing; see g01.err"));
}

TEST(Watch, NonFiniteFromTheEmitterIsDataNotAFault) {
  EXPECT_EQ(FakeRun("emit_nan").go().status, StepStatus::kCompleted);
}

TEST(Watch, SamplesOutsideTimeAreRefused) {
  FakeRun timed("normal");
  timed.in.mode = "time";
  EXPECT_EQ(timed.go().status, StepStatus::kCompleted);
  FakeRun checked("normal");
  checked.in.mode = "time";  // the worker runs in mode `time`, the engine planned `check`
  const auto line = base::protocol::print_case(checked.in);
  const WorkerSpec spec{.group = "g01",
                        .argv = {checked.program},
                        .env = {},
                        .marker = checked.folder.string(),
                        .input = line,
                        .result = checked.folder / "r",
                        .out = checked.folder / "o",
                        .err = checked.folder / "e",
                        .autopsy = checked.folder / "a",
                        .want = {.mode = "check", .cases = {"a"}}};
  EXPECT_EQ(run_worker(spec, checked.policy).cause, "BAD_MODE");
}

TEST(Watch, AHangLeavesAnAutopsyAndNoProcess) {
  const auto start = std::chrono::steady_clock::now();
  FakeRun run("hang");
  run.hooks.device_facts = [] { return nlohmann::json("device"); };
  run.hooks.device_held = [asked = 0]() mutable { return asked++ == 0 ? "812 MiB" : ""; };
  const auto outcome = run.go();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 3);
  EXPECT_EQ(outcome.signal, "SIGKILL");  // it ignores TERM
  EXPECT_FALSE(outcome.infrastructure);
  EXPECT_THAT(outcome.reason, HasSubstr("no progress for"));
  EXPECT_EQ(outcome.last_beat["step"], 3);
  const auto autopsy = nlohmann::json::parse(run.file(outcome.autopsy));
  EXPECT_EQ(autopsy["why"], "HANG");
  EXPECT_EQ(autopsy["ended_by"], "SIGKILL");
  EXPECT_EQ(autopsy["device_after"], "device");
  EXPECT_EQ(autopsy["device_held"], "");
  EXPECT_EQ(autopsy["processes"][0]["threads"].size(), 1u);
  EXPECT_EQ(autopsy["processes"][0]["threads"][0]["name"], "fake_worker");
  EXPECT_THAT(run.file("g01.err"), HasSubstr("host stacks: thread 1"));
}

TEST(Watch, TheLastStageOutlivesTheProcess) {
  FakeRun run("hang_in_stage");
  run.stages = run.folder / "out" / "stages.bin";
  write_bytes(run.stages, "1: of the process before");  // must not be taken for this one's
  const auto outcome = run.go();
  EXPECT_EQ(outcome.cause, "HANG");
  EXPECT_THAT(outcome.reason, HasSubstr("; last stage: 77: train.step > nsa.gate"));
  const auto autopsy = nlohmann::json::parse(run.file(outcome.autopsy));
  EXPECT_EQ(autopsy["last_stage"], "77: train.step > nsa.gate");
  FakeRun silent("hang_at_start");
  silent.stages = silent.folder / "out" / "stages.bin";
  write_bytes(silent.stages, "1: of the process before");
  EXPECT_THAT(silent.go().reason, testing::Not(HasSubstr("last stage")));
}

TEST(Watch, DeviceMemoryThatDoesNotComeBackIsNoted) {
  FakeRun run("hang_at_start");
  run.policy.proof_s = 0.3;
  run.hooks.device_held = [] { return "GPU 0: 812 MiB held, no process is visible"; };
  const auto outcome = run.go();
  EXPECT_EQ(outcome.cause, "HANG");
  ASSERT_EQ(outcome.notes.size(), 1u);
  EXPECT_THAT(outcome.notes[0], HasSubstr("did not come back: GPU 0: 812 MiB held"));
}

TEST(Watch, SlowIsRecordedAndNotKilled) {
  FakeRun run("normal", {{"steps", 6}, {"step_s", 0.15}, {"rate", 2}});
  run.policy.rate_floor = 10;
  const auto outcome = run.go();
  EXPECT_EQ(outcome.status, StepStatus::kCompleted) << text(outcome);
  ASSERT_TRUE(outcome.slow);
  EXPECT_EQ(outcome.slow->rate, 2);
  EXPECT_EQ(outcome.slow->floor, 10);
}

TEST(Watch, ProgressDoesNotLiftTheTimeout) {
  FakeRun run("normal", {{"steps", 1000}, {"step_s", 0.05}});
  run.policy.timeout_s = 0.6;
  const auto outcome = run.go();
  EXPECT_EQ(outcome.cause, "TIMEOUT");
  EXPECT_THAT(outcome.reason, HasSubstr("last heartbeat"));
}

TEST(Watch, QuietWithinTheAllowanceIsNoHang) {
  FakeRun run("stay_quiet", {{"quiet_s", 0.6}});
  run.policy.first_step_s = 5;
  EXPECT_EQ(run.go().status, StepStatus::kCompleted);
}

TEST(Watch, OrphansAreKilled) {
  for (const std::string behaviour : {"grandchild", "escaped_grandchild"}) {
    FakeRun run(behaviour);
    const auto outcome = run.go();
    EXPECT_EQ(outcome.status, StepStatus::kCompleted) << behaviour;
    EXPECT_EQ(outcome.orphans_killed, 1) << behaviour;
    const auto pid = std::stoi(run.file("out/grandchild.pid"));
    const auto stat = read_stat(pid);
    EXPECT_TRUE(!stat || stat->state == 'Z') << behaviour;
  }
}

TEST(Watch, FloodedLogsAreCut) {
  FakeRun run("flood", {{"mb", 100}});
  run.policy.first_step_s = 20;
  run.policy.log_cap = 1 << 20;
  const auto outcome = run.go();
  EXPECT_EQ(outcome.status, StepStatus::kCompleted) << text(outcome);
  EXPECT_LT(fs::file_size(run.folder / "g01.out"), (1u << 20) + 200);
  EXPECT_THAT(run.file("g01.out"),
              HasSubstr("[log cut here: the cap of 1048576 bytes is reached]"));
  ASSERT_EQ(outcome.notes.size(), 1u);
  EXPECT_THAT(outcome.notes[0], HasSubstr("100000000 bytes"));
}

// Without a limit it would fill the disk, and the memory of a reader of the evidence.
TEST(Watch, AFloodOfResultsEndsTheProcess) {
  FakeRun run("flood_results");
  run.policy.result_cap = 1 << 20;
  const auto outcome = run.go();
  EXPECT_EQ(outcome.cause, "GARBAGE") << text(outcome);
  EXPECT_THAT(outcome.reason, HasSubstr("more than 1048576 bytes on the result channel"));
  EXPECT_EQ(outcome.signal, "SIGKILL");
  EXPECT_FALSE(outcome.infrastructure) << "tried again, it would flood again";
  EXPECT_LE(fs::file_size(run.folder / "g01.jsonl"), 1u << 20);
  EXPECT_THAT(outcome.notes, testing::Contains(HasSubstr("cut at 1048576")));
}

TEST(Watch, LogsAreKeptByteForByte) {
  FakeRun run("hostile_log");
  EXPECT_EQ(run.go().status, StepStatus::kCompleted);
  EXPECT_EQ(run.file("g01.out"), "|`<script>\x1b[31m\xff\xfe\n");
}

TEST(Watch, ClosedStandardStreamsAreItsOwnAffair) {
  FakeRun run("closed_input");
  run.policy.first_step_s = 20;                        // the streams are the matter, not the time
  run.in.args["padding"] = std::string(1 << 20, 'x');  // more than a pipe holds
  const auto outcome = run.go();
  EXPECT_EQ(outcome.status, StepStatus::kCompleted) << text(outcome);
}

TEST(Watch, OnlyAllowedVariablesReachTheWorker) {
  ::setenv("SECRET_TOKEN", "s", 1);
  FakeRun run("print_env");
  run.env = {{"NSA_FAKE", "2"}};
  run.go();
  EXPECT_EQ(run.file("g01.out"),
            "NSA_FAKE=2\nHARNESS_GROUP=" + run.folder.string() + "\nSECRET_TOKEN=unset\n");
}

std::string content_of_library(const std::string& which) {
  return sha256_file(base::build_dir() + "/fake_nsa/" + which + "/libnsa_fake.so");
}

/// Sets a variable of this process for the length of a test.
struct Variable {
  Variable(const char* variable, const std::string& value) : name(variable) {
    ::setenv(variable, value.c_str(), 1);
  }
  ~Variable() { ::unsetenv(name); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  const char* name;
};

TEST(Watch, LibrariesOfTheProductAreRecordedWithTheirContent) {
  FakeRun run("normal");
  const LoadedLibrary built{"libnsa_fake.so", content_of_library("built")};
  EXPECT_THAT(run.go().libraries, testing::ElementsAre(built));
}

TEST(Watch, ASearchPathDoesNotReplaceALibraryOfTheBuild) {
  FakeRun run("normal");
  const std::string other = base::build_dir() + "/fake_nsa/other";
  ASSERT_NE(content_of_library("other"), content_of_library("built"));
  const Variable path("LD_LIBRARY_PATH", "/nowhere:" + other);
  const auto outcome = run.go();
  ASSERT_EQ(outcome.cause, "") << text(outcome);
  EXPECT_EQ(outcome.libraries.at(0).sha256, content_of_library("built"));
}

TEST(Watch, AMissingProgramIsNotStarted) {
  FakeRun run("normal");
  run.program = "/nonexistent/nsa-worker";
  auto outcome = run.go();
  EXPECT_EQ(outcome.cause, "NOT_STARTED");
  EXPECT_EQ(outcome.reason, "cannot start /nonexistent/nsa-worker: No such file or directory");
  fs::remove(run.folder / "g01.jsonl");
  run.program = run.folder / "plain";
  write_bytes(run.program, "no program");
  EXPECT_THAT(run.go().reason, HasSubstr("Permission denied"));
}

TEST(Watch, AnInterruptEndsTheGroup) {
  FakeRun run("hang");
  run.policy.first_step_s = 60;
  run.policy.stall_floor_s = 60;
  int signal = 0;
  run.hooks.stop_signal = [&] { return signal; };
  run.hooks.on_beat = [&](const base::protocol::Beat&, double) { signal = SIGTERM; };
  const auto outcome = run.go();
  EXPECT_EQ(outcome.cause, "INTERRUPTED");
  EXPECT_EQ(outcome.reason, "interrupted by SIGTERM");
}

TEST(Watch, TheWorkerDiesWithItsParent) {
  FakeRun run("hang");
  run.policy.first_step_s = 60;
  run.policy.stall_floor_s = 60;
  const pid_t engine = ::fork();
  if (engine == 0) {
    run.go();
    ::_exit(0);
  }
  const GroupKey key{.marker = run.folder.string()};
  for (int i = 0; i < 500 && find_group(key).empty(); i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_FALSE(find_group(key).empty());
  ::kill(engine, SIGKILL);
  ::waitpid(engine, nullptr, 0);
  for (int i = 0; i < 500 && !find_group(key).empty(); i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(find_group(key).empty());
}

}  // namespace
}  // namespace harness
