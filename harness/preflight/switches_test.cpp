#include "harness/preflight/switches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/fake_program.h"
#include "harness/process/os/proc_scan.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// One variable of the environment for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(Switches, TheWorkerReportsItsNames) {
  const TempDir dir;
  write_fake_worker(dir / "bin");
  const SwitchNames names = ask_switch_names(dir / "bin");
  EXPECT_EQ(names.problem, "");
  EXPECT_THAT(names.known, ElementsAre("NSA_SEL_RANGES_V2"));
}

TEST(Switches, VariablesOfThisProcessDoNotDisturbTheQuestion) {
  const TempDir dir;
  write_fake_worker(dir / "bin");
  const Variable misspelt("NSA_SEL_RANGES_V3", "1");  // with it this worker would refuse
  EXPECT_EQ(ask_switch_names(dir / "bin").problem, "");
}

TEST(Switches, AMissingWorkerIsAProblemNotAnEmptyList) {
  const TempDir dir;
  EXPECT_THAT(ask_switch_names(dir / "bin").problem,
              HasSubstr("the worker does not report its switches: "));
}

TEST(Switches, AWorkerThatLeavesAProcessBehindIsNotWaitedFor) {
  const TempDir dir;
  write_fake_worker(dir / "bin");
  const auto script = read_bytes(dir / "bin/nsa-worker");
  const std::string first = "#!/bin/sh\n";
  ASSERT_TRUE(script.starts_with(first));
  const auto left = (dir / "left").string();
  write_bytes(dir / "bin/nsa-worker", first + "setsid sh -c 'echo $$ > " + left +
                                          "; exec sleep 60' &\n" + script.substr(first.size()));
  std::filesystem::permissions(dir / "bin/nsa-worker", std::filesystem::perms::owner_all);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ask_switch_names(dir / "bin").problem, "");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  if (!std::filesystem::exists(left)) return;  // ended before it began
  const auto stat = read_stat(std::stoi(read_bytes(left)));
  EXPECT_TRUE(!stat || stat->state == 'Z') << "it is still there";
}

TEST(Switches, TheWorkersRefusalIsReportedInItsOwnWords) {
  const TempDir dir;
  write_fake_worker(dir / "bin");
  EXPECT_EQ(environment_refusal(dir / "none"), "") << "without variables no worker is asked";
  const Variable known("NSA_SEL_RANGES_V2", "1");
  EXPECT_EQ(environment_refusal(dir / "bin"), "");
  EXPECT_THAT(environment_refusal(dir / "none"), HasSubstr("the worker was not asked: "));
  const Variable misspelt("NSA_SEL_RANGES_V3", "1");
  EXPECT_EQ(environment_refusal(dir / "bin"),
            "CONFIG_ERROR: unknown switch NSA_SEL_RANGES_V3; did you mean NSA_SEL_RANGES_V2?");
}

TEST(Switches, WhatNoPhaseLooksAtIsNamed) {
  const TempDir dir;
  write_fake_worker(dir / "bin");
  EXPECT_EQ(ignored_by_all(dir / "none", {"ranges_ab"}), "")
      << "without variables no worker is asked";
  const Variable known("NSA_SEL_RANGES_V2", "1");
  EXPECT_EQ(ignored_by_all(dir / "none", {}), "") << "nor where nothing runs";
  EXPECT_EQ(ignored_by_all(dir / "none", {"ranges_ab"}), "") << "no worker: its phases report it";
  EXPECT_EQ(ignored_by_all(dir / "bin", {"looks"}), "");
  EXPECT_EQ(ignored_by_all(dir / "bin", {"blind", "looks_away"}),
            "NSA_SEL_RANGES_V2=1 (environment) is ignored by every phase of this run "
            "(blind,looks_away); unset it or choose a runbook that it decides something in");
  EXPECT_EQ(ignored_by_all(dir / "bin", {"looks"}, {"nsa-tests"}), "");
  EXPECT_THAT(ignored_by_all(dir / "bin", {}, {"nsa-tests"}),
              HasSubstr("is ignored by every phase of this run (nsa-tests); unset it"));
}

TEST(Switches, UnknownVariablesAreNamedWithTheNearest) {
  const Variable known("NSA_SEL_RANGES_V2", "1"), misspelt("NSA_SEL_RANGES_V3", "1"),
      foreign("NSAX", "1");
  const auto found = check_environment_switches({"NSA_SEL_RANGES_V2", "NSA_NVTX"});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "NSA_SEL_RANGES_V2");
  EXPECT_EQ(found[0].problem, "");
  EXPECT_EQ(found[1].name, "NSA_SEL_RANGES_V3");
  EXPECT_EQ(found[1].problem,
            "no such switch, or its feature does not exist; unset it; did you mean "
            "'NSA_SEL_RANGES_V2'?");
}

}  // namespace
}  // namespace harness
