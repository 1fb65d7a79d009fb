// What a command line sets up before anything runs, and what --resume takes from the folder.
#include "harness/cli/work.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "harness/cli/paths.h"
#include "harness/cli/testing.h"
#include "harness/evidence/derive/baselines.h"
#include "harness/evidence/error.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/evidence/tables/catch_matrix.h"

namespace harness::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

/// configs/ with the shipped kinds, one small runbook and no baseline.
class WorkTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(dir_ / "configs/runbooks");
    fs::create_directory_symlink(shipped_configs() + "/kinds", dir_ / "configs/kinds");
    write_bytes(
        dir_ / "configs/runbooks/mini.json",
        R"({"schema": "nsa-runbook/1", "name": "mini", "title": "t", "scope": "s", "seed": 7,
      "device": "cpu", "phases": [{"id": "environment", "title": "e", "run": "builtin:environment", "criteria": [{"id": "C-known", "text": "known", "metric":
      "environment.switches.unknown_count", "op": "==", "value": 0, "unit": "count",
      "severity": "major", "evidence": "record"}]}]})");
    options_.configs = (dir_ / "configs").string();
    options_.runbook = "mini";
    options_.out = (dir_ / "out").string();
  }

  Work work() const { return new_work(options_); }
  /// The baseline file that this machine would use by itself.
  fs::path own_baseline() const {
    return baseline_path(options_.configs, "mini", hardware_of(work().run.environment));
  }
  static void put(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    write_bytes(file, text);
  }
  std::string damage() const {
    try {
      resumed_work(options_);
    } catch (const EvidenceError& error) {
      return error.what();
    }
    return "resumed";
  }
  TempDir dir_;
  Options options_;
};

TEST_F(WorkTest, TheCommandLineReachesTheRun) {
  options_.gate = "advisory";
  options_.command_line = {"nsa-validate", "--runbook", "mini"};
  const Work made = work();
  EXPECT_EQ(made.runbook.name, "mini");
  EXPECT_TRUE(made.kinds.contains("environment"));
  EXPECT_EQ(made.plan.phases.size(), 1u);
  EXPECT_EQ(made.run.out, dir_ / "out");
  EXPECT_FALSE(made.run.resume);
  EXPECT_EQ(made.run.info.gate, "advisory");
  EXPECT_EQ(made.run.info.command_line, options_.command_line);
  EXPECT_TRUE(made.run.environment.contains("machine"));
  EXPECT_FALSE(fs::exists(dir_ / "out")) << "nothing has begun";
}

TEST_F(WorkTest, WhetherTheRunbookIsTheShippedOneIsRecorded) {
  EXPECT_EQ(work().run.environment["runbook"]["shipped"], false);
  EXPECT_TRUE(work().run.environment["runbook"]["shipped_sha256"].is_null());
  options_.configs = shipped_configs();
  options_.runbook = "smoke_cpu";
  EXPECT_EQ(work().run.environment["runbook"]["shipped"], true);
  fs::create_directories(dir_ / "copy");
  fs::copy(shipped_configs(), dir_ / "copy", fs::copy_options::recursive);
  std::string text = read_bytes(dir_ / "copy/runbooks/smoke_cpu.json");
  const size_t at = text.find("\"seed\"");
  text.insert(at == std::string::npos ? text.find('{') + 1 : at,
              at == std::string::npos ? "\"seed\": 4711," : "\"minutes\": 99,");
  write_bytes(dir_ / "copy/runbooks/smoke_cpu.json", text);
  options_.configs = (dir_ / "copy").string();
  const auto changed = work().run.environment["runbook"];
  EXPECT_EQ(changed["shipped"], false);
  EXPECT_TRUE(changed["shipped_sha256"].is_string());
}

TEST_F(WorkTest, WithoutAFolderTheRunGetsOneOfItsOwnName) {
  const WorkingDir here(dir_.path());
  options_.out.clear();
  const Work first = work(), second = work();
  EXPECT_THAT(first.run.out.string(), testing::StartsWith("runs/mini-20"));
  EXPECT_NE(first.run.out, second.run.out);
  for (const Work* made : {&first, &second}) {
    EXPECT_TRUE(fs::is_directory(made->run.out));
    EXPECT_EQ(made->run.info.id, made->run.out.filename());
  }
}

TEST_F(WorkTest, ARefusedCallLeavesNoFolderBehind) {
  const WorkingDir here(dir_.path());
  options_.out.clear();
  options_.baseline = "none.json";
  EXPECT_THAT(error_of([&] { work(); }), HasSubstr("no such file"));
  EXPECT_FALSE(fs::exists("runs"));
}

TEST_F(WorkTest, TheBaselineOfThisHardwareIsAttachedUnlessAnotherOrNoneIsNamed) {
  EXPECT_FALSE(work().run.attached.contains("baseline.json"));
  put(own_baseline(), "own");
  put(dir_ / "other.json", "other");
  EXPECT_EQ(work().run.attached.at("baseline.json"), "own");
  options_.baseline = (dir_ / "other.json").string();
  EXPECT_EQ(work().run.attached.at("baseline.json"), "other");
  options_.baseline = "none";
  EXPECT_FALSE(work().run.attached.contains("baseline.json"));
}

TEST_F(WorkTest, ANamedBaselineMustBeAFile) {
  for (const std::string& name : {(dir_ / "none.json").string(), dir_.path().string()}) {
    options_.baseline = name;
    EXPECT_EQ(error_of([&] { work(); }),
              "--baseline " + name + ": no such file; name one, or none");
  }
}

TEST_F(WorkTest, ALaterRevisionTakesTheFirstOneAlong) {
  const Written before = finish_run(dir_ / "before");
  options_.supersedes = (dir_ / "before").string();
  const Work made = work();
  EXPECT_EQ(made.run.info.revision, "2");
  EXPECT_EQ(made.run.info.supersedes, before.head);
  EXPECT_EQ(made.run.attached.at("superseded/ledger.jsonl"),
            read_bytes(dir_ / "before/ledger.jsonl"));
}

TEST_F(WorkTest, ResumingTakesEverythingFromTheFolder) {
  write_mini_run(dir_ / "run");
  options_.resume = (dir_ / "run").string();
  options_.runbook.clear();
  const Work made = resumed_work(options_);
  EXPECT_TRUE(made.run.resume);
  EXPECT_EQ(made.run.out, dir_ / "run");
  EXPECT_EQ(made.runbook.title, "Invented numbers");
  EXPECT_EQ(made.plan.phases.size(), 3u);
  EXPECT_EQ(made.run.info.id, "mini-20250216T000000Z");
}

TEST_F(WorkTest, TheEnvironmentOfAResumedRunIsThatOfThisMachine) {
  write_mini_run(dir_ / "run");
  options_.resume = (dir_ / "run").string();
  const auto here = resumed_work(options_).run.environment;
  EXPECT_NE(here.at("build").at("build_id"), "mini-build") << "the engine compares it";
  EXPECT_TRUE(here.contains("machine"));
}

TEST_F(WorkTest, WhatCannotBeResumedIsNamed) {
  options_.resume = (dir_ / "none").string();
  EXPECT_THAT(error_of([&] { resumed_work(options_); }), HasSubstr("no such run folder"));
  options_.supersedes = "x";
  EXPECT_THAT(error_of([&] { resumed_work(options_); }), HasSubstr("--supersedes belongs to"));
  options_.supersedes.clear();
  fs::create_directories(dir_ / "none");
  EXPECT_THAT(error_of([&] { resumed_work(options_); }), HasSubstr("holds no run.json"));
  write_mini_run(dir_ / "run");
  options_.resume = (dir_ / "run").string();
  write_bytes(dir_ / "run/plan.json", "{");
  EXPECT_THAT(damage(), HasSubstr("plan.json"));
}

/// Whether the self test ran at once or was resumed; a test of some faults is no matrix of all.
TEST(CatchMatrixOfASelfTest, IsKeptWhenAllFaultsWereInjected) {
  Results results;
  results.environment["build"]["build_id"] = "unit_test_of_work";
  results.tables = {{{"id", "selftest.catch_matrix"}, {"columns", {"fault"}}, {"rows", {{"P01"}}}}};
  const fs::path file = matrices_dir() / catch_matrix_name(results.environment);
  const auto kept = [&](const char* runbook, const char* faults) {
    Work work;
    work.runbook.name = runbook;
    work.plan.phases.resize(1);
    work.plan.phases[0].args = {{"faults", json::array({faults})}};
    keep_catch_matrix(work, results);
    return fs::remove(file);
  };
  EXPECT_TRUE(kept("selftest", "all"));
  EXPECT_FALSE(kept("selftest", "P24"));
  EXPECT_FALSE(kept("smoke_cpu", "all"));
}

}  // namespace
}  // namespace harness::cli
