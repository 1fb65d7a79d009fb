/// Runs that are cut off at any time and continued.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <random>
#include <regex>
#include <thread>

#include "harness/engine/testing.h"
#include "harness/process/os/proc_scan.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::HasSubstr;

void add_phases(FakeRun& run) {
  run.add("first", "normal", 3).args["step_s"] = 0.01;
  run.add("hostile", "normal").cases = {{.id = "a|`b`<script>\n\x1b[31m"}};
  run.add("bad", "no_done");
  run.add("unlucky", "fail_once").retries = 1;
  run.add("below", "normal").needs = {"bad"};
  run.add("last", "normal", 2).args["step_s"] = 0.01;
}

/// The content of a run without what differs between two runs of the same plan: times, process
/// ids, attempts, paths.
std::string essence(const FakeRun& run) {
  std::string all;
  for (const auto& phase : run.plan.phases) {
    const auto record = run.record(phase.id);
    all += phase.id + " " + run.end_of(phase.id) + " " + record.reason + "\n";
    for (const auto& group : phase.groups) {
      const auto file = run.file("phases/" + phase.id + "/" + group.id + ".jsonl");
      if (fs::exists(file)) all += group.id + "\n" + read_bytes(file);
    }
  }
  static const std::regex kVarying(R"re("(t|pid)":[0-9.e-]+)re");
  return std::regex_replace(all, kVarying, R"re("$1":0)re");
}

std::string uninterrupted() {
  static const std::string text = [] {
    FakeRun run("whole");
    add_phases(run);
    run.go();
    return essence(run);
  }();
  return text;
}

/// Runs the engine in a child that is killed after `ms`. Returns whether it was cut off.
bool killed_after(FakeRun& run, int ms) {
  const pid_t engine = ::fork();
  if (engine == 0) {
    try {
      run.go();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "engine: %s\n", e.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  ::kill(engine, SIGKILL);
  int status = 0;
  ::waitpid(engine, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

TEST(Resume, AfterKillAtAnyTimeTheEvidenceIsThatOfAWholeRun) {
  std::mt19937 random(1);
  int cuts = 0;
  for (int round = 0; round < 5; round++) {
    FakeRun run("killed" + std::to_string(round));
    add_phases(run);
    // On a slow machine the next phase takes longer than the first bound: it grows.
    for (int longest_ms = 250; longest_ms > 0;) {
      run.options.resume = fs::exists(run.options.out);
      const bool cut = killed_after(run, std::uniform_int_distribution(1, longest_ms)(random));
      longest_ms = cut ? longest_ms + 50 : 0;
      cuts += cut;
    }
    ASSERT_EQ(essence(run), uninterrupted()) << "round " << round;
    EXPECT_TRUE(
        find_group({.marker = fs::canonical(run.options.out).string() + "|", .prefix = true})
            .empty());
  }
  std::printf("resume: %d cuts\n", cuts);
  EXPECT_GT(cuts, 5);
}

TEST(Resume, NothingRunsTwice) {
  FakeRun run("again");
  add_phases(run);
  run.go();
  const auto before = essence(run);
  const auto written = fs::last_write_time(run.file("phases/first/g01.jsonl"));
  run.options.resume = true;
  run.observer.beats = 0;
  run.go();
  EXPECT_EQ(run.observer.beats, 0);
  EXPECT_EQ(fs::last_write_time(run.file("phases/first/g01.jsonl")), written);
  EXPECT_EQ(essence(run), before);
  EXPECT_THAT(run.observer.notes, Contains("first: ended before as COMPLETED, reused"));
}

TEST(Resume, ARunThatHasItsLedgerHasEnded) {
  FakeRun run("sealed");
  run.add("one", "normal");
  run.go();
  write_bytes(run.file("ledger.jsonl"), "sealed");
  run.options.resume = true;
  try {
    run.go();
    ADD_FAILURE() << "it was resumed";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("has ended and its evidence is sealed"));
  }
}

TEST(Resume, ARetryThatWasDueIsMade) {
  FakeRun run("due");
  run.add("unlucky", "fail_once");
  run.go();
  ASSERT_EQ(run.end_of("unlucky"), "FAILED SIGNAL");
  fs::remove(run.file("phases/unlucky/phase.json"));  // killed between the fault and the retry
  fs::remove(run.file("run.json"));
  run.plan.phases[0].retries = 1;
  run.options.resume = true;
  run.go();
  EXPECT_EQ(run.end_of("unlucky"), "COMPLETED");
  EXPECT_TRUE(run.has("phases/unlucky/g01.a1.json"));
}

/// Training that continues at its checkpoints has no step left to measure behind its end.
TEST(Resume, TrainingThatEndedBeforeTheEngineSawItIsKept) {
  for (const bool continues : {true, false}) {
    FakeRun run(continues ? "ended_trains" : "ended");
    run.add("one", "normal").args["resume"] = continues;
    run.go();
    const auto evidence = read_bytes(run.file("phases/one/g01.jsonl"));
    fs::remove(run.file("phases/one/phase.json"));
    fs::remove(run.file("phases/one/g01.json"));
    run.options.resume = true;
    run.go();
    EXPECT_EQ(run.end_of("one"), "COMPLETED");
    EXPECT_EQ(run.has("phases/one/g01.a1.jsonl"), !continues);
    EXPECT_EQ(read_bytes(run.file("phases/one/g01.jsonl")) == evidence, continues);
    EXPECT_EQ(run.record("one").attempts, continues ? 1 : 2);
  }
}

TEST(Resume, EvidenceCutInHalfIsRunAgainAndKept) {
  FakeRun run("half");
  add_phases(run);
  run.go();
  const auto before = essence(run);
  const auto evidence = run.file("phases/first/g02.jsonl");
  fs::resize_file(evidence, fs::file_size(evidence) / 2);
  run.options.resume = true;
  run.go();
  EXPECT_EQ(essence(run), before);
  EXPECT_TRUE(run.has("phases/first/g02.a1.jsonl"));
  EXPECT_FALSE(run.has("phases/first/g01.a1.jsonl"));
  EXPECT_EQ(run.record("first").attempts, 2);
}

TEST(Resume, RefusesAnotherRunbookPlanOrBuild) {
  FakeRun run("differs");
  add_phases(run);
  run.go();
  run.options.resume = true;
  const auto refusal = [](FakeRun changed) {
    try {
      changed.go();
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  auto other = run;
  other.runbook.seed++;
  EXPECT_THAT(refusal(other), HasSubstr("runbook.json of"));
  EXPECT_THAT(refusal(other),
              HasSubstr("differs at /seed from the one of this call; start a new run"));
  other = run;
  other.plan.phases[0].decision = Decision::kDefer;
  EXPECT_THAT(refusal(other), HasSubstr("differs at /phases/0/decision"));
  other = run;
  other.options.environment["build"]["build_id"] = "c";
  EXPECT_THAT(refusal(other), HasSubstr("begun with build id \"b\", the programs have \"c\""));
  other = run;
  other.options.environment["machine"]["cpu"]["model"] = "Other CPU";
  EXPECT_THAT(refusal(other), HasSubstr("begun with machine/cpu/model null, here it is \"Other"));
  other = run;
  other.options.environment["gpu"]["gpus"] = {{{"name", "NVIDIA H200"}, {"power_limit_w", 700}}};
  EXPECT_THAT(refusal(other), HasSubstr("GPUs [], here it is [[\"NVIDIA H200\",700]]"));
  other = run;
  other.options.environment["switches"]["NSA_SEL_RANGES_V2"] = "0";
  EXPECT_THAT(refusal(other), HasSubstr("NSA_SEL_RANGES_V2"));
  other = run;
  other.plan.facts["gpu.free_mib"] = 7;  // never the same twice
  EXPECT_EQ(refusal(other), "accepted");
  other = run;
  other.options.out = run.root / "nowhere";
  EXPECT_THAT(refusal(other), HasSubstr("no such run folder"));
}

TEST(Resume, ASignalEndsTheRunAndItCanGoOn) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    FakeRun run("signal" + std::to_string(signal));
    run.add("long", "normal").args["step_s"] = 0.1;
    run.add("next", "normal");
    const pid_t engine = ::fork();
    if (engine == 0) ::_exit(128 + run.go().signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ::kill(engine, signal);
    int status = 0;
    ::waitpid(engine, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    EXPECT_FALSE(run.has("phases/long/phase.json"));
    run.options.resume = true;
    EXPECT_EQ(run.go().signal, 0);
    EXPECT_EQ(run.end_of("long"), "COMPLETED") << run.record("long").reason;
    EXPECT_TRUE(run.has("phases/long/g01.a1.jsonl"));
  }
}

TEST(Resume, LeftoversOfAKilledEngineAreEnded) {
  FakeRun run("leftover");
  run.add("one", "hang_with_grandchild");
  const GroupKey key{.marker = fs::canonical(run.root).string() + "/run|", .prefix = true};
  killed_after(run, 300);
  for (int i = 0; i < 300 && find_group(key).size() != 1; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(find_group(key).size(),
            1u);  // the worker died with the engine, its escaped child did not
  run.options.resume = true;
  run.hangs_soon();
  run.go();
  EXPECT_THAT(run.observer.notes, Contains(HasSubstr("left by an earlier start")));
  EXPECT_TRUE(find_group(key).empty());
}

void write_text(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY);
  [[maybe_unused]] const auto n = ::write(fd, text.data(), text.size());
  ::close(fd);
}

/// A small disk of our own at `folder`, in a user and mount namespace; false where that is not
/// permitted.
bool mount_small_disk(const fs::path& folder) {
  const auto uid = ::getuid(), gid = ::getgid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
  write_text("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  return ::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=512k") == 0;
}

void more_room(const fs::path& folder, bool disk) {
  const int failed = disk ? ::mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT, "size=64m") : 0;
  ASSERT_EQ(failed, 0);
  const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
}

/// Runs in a child: fills a disk, makes room, continues.
void fill_and_continue() {
  FakeRun run("full");
  fs::create_directories(run.root / "disk");
  run.options.out = run.root / "disk" / "run";
  run.add("small", "normal");
  run.add("large", "normal").args["steps"] = 3000;
  const bool disk = mount_small_disk(run.root / "disk");
  std::printf("full disk: by %s\n",
              disk ? "a tmpfs of 512 KiB" : "RLIMIT_FSIZE, no tmpfs is permitted here");
  const rlimit soft{100 << 10, RLIM_INFINITY};
  if (!disk) ::setrlimit(RLIMIT_FSIZE, &soft);
  try {
    run.go();
    ADD_FAILURE() << "a full disk was not noticed";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("make room and continue with --resume")) << e.what();
  }
  EXPECT_EQ(run.end_of("small"), "COMPLETED");
  EXPECT_FALSE(run.has("phases/large/phase.json"));
  more_room(run.root / "disk", disk);
  run.options.resume = true;
  run.go();
  EXPECT_EQ(run.end_of("large"), "COMPLETED") << run.record("large").reason;
  EXPECT_THAT(run.observer.notes, Contains("small: ended before as COMPLETED, reused"));
}

TEST(Resume, AFullDiskIsReportedAndTheRunGoesOnWithRoom) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    fill_and_continue();
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace harness
