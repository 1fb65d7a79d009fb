// Runs that are cut off: nothing is lost, nothing is counted twice, and --resume finishes them.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<std::string> start(const fs::path& dir, const std::string& book = runbook("timed")) {
  return {program(), "--runbook", book, "--out", dir.string()};
}

/// Every sample of the groups that count, without what was measured.
std::vector<std::string> samples(const fs::path& run) {
  std::vector<std::string> found;
  for (const char* group : {"g01", "g02", "g03"}) {
    std::istringstream lines(read_file(run / "phases/ranges_ab" / (group + std::string(".jsonl"))));
    for (std::string line; std::getline(lines, line);) {
      nlohmann::json sample = nlohmann::json::parse(line);
      if (sample["type"] != "sample") continue;
      for (const char* key : {"value", "t", "clock_mhz", "throttle", "ran_pct"}) sample.erase(key);
      found.push_back(group + sample.dump());
    }
  }
  return found;
}

std::vector<std::string> metrics(const fs::path& run) {
  std::vector<std::string> found;
  const nlohmann::json all = results(run);
  for (const auto& metric : all.at("metrics"))
    found.push_back(metric["id"].get<std::string>() + " " + metric["n"].dump());
  return found;
}

/// One run that nothing disturbed.
const fs::path& whole_run() {
  static const fs::path dir = fresh_dir("whole");
  if (!fs::exists(dir)) {
    const Outcome done = run(start(dir));
    EXPECT_EQ(done.exit_code, 0) << done.output;
  }
  return dir;
}

/// A run that has its ledger is over, even when the engine was killed just behind it.
bool ended(const fs::path& dir) { return fs::exists(dir / "ledger.jsonl"); }

void expect_resumed(const fs::path& dir) {
  if (!ended(dir)) {
    const Outcome done = validate({"--resume", dir.string()});
    EXPECT_EQ(done.exit_code, 0) << done.output;
  }
  EXPECT_THAT(metrics(dir), testing::Not(testing::IsEmpty()));
  EXPECT_EQ(metrics(dir), metrics(whole_run()));
  EXPECT_EQ(samples(dir), samples(whole_run()));
  const Outcome verified = validate({"verify", dir.string()});
  EXPECT_EQ(verified.exit_code, 0) << verified.output;
}

TEST(Interrupted, WholeRunHasSamples) {
  const std::vector<std::string> all = samples(whole_run());
  EXPECT_FALSE(all.empty());
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size()) << "each once";
}

TEST(Interrupted, KilledEngineResumesWithNothingLostOrTwice) {
  std::random_device random;
  for (const char* group : {"g01", "g02", "g03"}) {
    const auto pause = std::chrono::milliseconds(random() % 500);
    SCOPED_TRACE(std::string(group) + " and " + std::to_string(pause.count()) + " ms");
    const fs::path dir = fresh_dir("killed");
    Running engine(start(dir));
    ASSERT_TRUE(engine.wait_for(dir / "phases/ranges_ab" / (group + std::string(".err"))));
    std::this_thread::sleep_for(pause);
    engine.send(SIGKILL);
    // The last group may be over before the pause is.
    EXPECT_THAT(engine.finish().exit_code, testing::AnyOf(128 + SIGKILL, 0));
    expect_resumed(dir);
  }
}

int from_environment(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text == nullptr ? fallback : std::atoi(text);
}

/// Runs with kill -9 at random moments of their lives, of the engine, its worker or both.
class Killing {
 public:
  /// Starts and kills until the run in `dir` is over.
  void finish(const fs::path& dir) {
    std::vector<std::string> argv = start(dir, book_);
    for (bool over = false; !over;) {
      Running engine(argv);
      const bool engine_killed = kills < wanted_ && strike(engine);
      const Outcome done = engine.finish();
      over = done.exit_code == 0 || ended(dir);
      if (done.exit_code != 0) {
        ASSERT_TRUE(engine_killed && done.exit_code == 128 + SIGKILL) << done.output;
      }
      if (fs::exists(dir / "run.json"))
        argv = {program(), "--resume", dir.string()};
      else
        fs::remove_all(dir);
    }
  }
  bool done() const { return kills >= wanted_; }

  int kills = 0, engines = 0, workers = 0;

 private:
  /// Returns whether the engine was killed.
  bool strike(const Running& engine) {
    const int victim = static_cast<int>(random_() % 3);  // engine, worker, both
    std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 1500));
    const pid_t worker = victim == 0 ? 0 : engine.child_now("nsa-worker");
    if (worker > 0) kill(worker, SIGKILL);
    if (victim != 1) engine.send(SIGKILL);
    workers += worker > 0;
    engines += victim != 1;
    kills += worker > 0 || victim != 1;
    return victim != 1;
  }

  const int wanted_ = from_environment("TEST_KILLS", 4);
  std::mt19937 random_{static_cast<unsigned>(from_environment("TEST_KILL_SEED", 1))};
  const std::string book_ = changed_runbook(
      "timed", "killed_anywhere", {{"\"processes\": 3", "\"processes\": 3, \"retries\": 9"}});
};

/// TEST_KILLS=100 tries as many moments, TEST_KILL_SEED=N others.
TEST(Interrupted, KilledAtAnyMomentNothingIsLostOrTwice) {
  Killing killing;
  while (!killing.done()) {
    const fs::path dir = fresh_dir("killed_anywhere");
    killing.finish(dir);
    SCOPED_TRACE("after " + std::to_string(killing.kills) + " kills");
    ASSERT_EQ(metrics(dir), metrics(whole_run()));
    ASSERT_EQ(samples(dir), samples(whole_run()));
    ASSERT_EQ(validate({"verify", dir.string()}).exit_code, 0);
  }
  std::printf("interrupted: %d kills: engine %d times, worker %d times\n", killing.kills,
              killing.engines, killing.workers);
}

TEST(Interrupted, InterruptReportsHowToGoOn) {
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT}) {
    const fs::path dir = fresh_dir("interrupted" + std::to_string(signal));
    Running engine(start(dir));
    ASSERT_TRUE(engine.wait_for(dir / "phases/ranges_ab/g02.err"));
    engine.send(signal);
    const Outcome done = engine.finish();
    EXPECT_EQ(done.exit_code, 128 + signal) << done.output;
    EXPECT_THAT(done.output, HasSubstr("continue with: nsa-validate --resume " + dir.string()));
    expect_resumed(dir);
  }
}

Outcome run_with_killed_worker(const fs::path& dir, const std::string& book) {
  Running engine(start(dir, book));
  EXPECT_TRUE(engine.wait_for(dir / "phases/ranges_ab/g02.err"));
  const pid_t worker = engine.child("nsa-worker");
  EXPECT_GT(worker, 0);
  kill(worker, SIGKILL);
  return engine.finish();
}

TEST(Interrupted, KilledWorkerIsAFaultByName) {
  const fs::path dir = fresh_dir("killed_worker");
  const Outcome done = run_with_killed_worker(dir, runbook("timed"));
  EXPECT_EQ(done.exit_code, 3) << done.output;
  EXPECT_THAT(done.output, HasSubstr("NO-GO (fault)"));
  const nlohmann::json phase = results(dir)["phases"][0];
  EXPECT_EQ(phase["status"], "FAILED");
  EXPECT_EQ(phase["cause"], "SIGNAL");
  EXPECT_THAT(phase["reason"], HasSubstr("SIGKILL"));
}

TEST(Interrupted, KilledWorkerIsTriedAgainWhenTheRunbookReportsIt) {
  const fs::path dir = fresh_dir("retried");
  const std::string book = changed_runbook(
      "timed", "retried", {{"\"processes\": 3", "\"processes\": 3, \"retries\": 1"}});
  const Outcome done = run_with_killed_worker(dir, book);
  EXPECT_EQ(done.exit_code, 0) << done.output;
  EXPECT_EQ(results(dir)["phases"][0]["attempts"], 2);
  EXPECT_TRUE(fs::exists(dir / "phases/ranges_ab/g02.a1.json")) << "the lost attempt is kept";
}

/// Runs `script` with $0 = nsa-validate, $1 = runbook, $2 = folder.
Outcome in_shell(std::vector<std::string> before, const std::string& script, const fs::path& dir) {
  before.insert(before.end(), {"/bin/sh", "-c", script, program(), runbook("mini"), dir.string()});
  return run(before);
}

TEST(Interrupted, FullDiskIsAFaultAndResumesWhenThereIsRoom) {
  const fs::path dir = fresh_dir("full_disk");
  fs::create_directories(dir);
  const std::vector<std::string> own_mounts = {"/usr/bin/unshare", "-rm"};
  const std::string mount = "mount -t tmpfs -o size=64k none \"$2\" || exit 99; ";
  const bool can_mount = in_shell(own_mounts, mount, dir).exit_code == 0;
  const std::string run = "\"$0\" --runbook \"$1\" --out \"$2/run\"; echo first=$?; ";
  const std::string again = "\"$0\" --resume \"$2/run\"; echo second=$?";
  const Outcome done =
      can_mount
          ? in_shell(own_mounts, mount + run + "mount -o remount,size=64m \"$2\"; " + again, dir)
          : in_shell({}, "(ulimit -f 20; " + run + "); " + again, dir);
  EXPECT_THAT(done.output, HasSubstr("make room and continue with --resume"));
  EXPECT_THAT(done.output, HasSubstr("first=3"));
  EXPECT_THAT(done.output, HasSubstr("second=0"));
}

}  // namespace
}  // namespace suites::end_to_end
