#include "harness/provenance/capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "harness/process/os/proc_scan.h"

namespace harness {
namespace {

using testing::HasSubstr;

TEST(Capture, OutputAndExitStatus) {
  EXPECT_EQ(capture({"echo", "one two"}).out, "one two\n");
  EXPECT_EQ(capture({"sh", "-c", "exit 7"}).exit, 7);
  EXPECT_EQ(capture({"sh", "-c", "kill -9 $$"}).exit, 137);
}

TEST(Capture, InputAndEnvironment) {
  CaptureOptions options;
  options.input = "line\n";
  options.env = {{"NSA_CAPTURE_TEST", "value"}};
  EXPECT_EQ(capture({"sh", "-c", "cat; echo $NSA_CAPTURE_TEST"}, options).out, "line\nvalue\n");
}

TEST(Capture, ForeignCodeIsNotPutIntoPrograms) {
  setenv("LD_PRELOAD", "/nowhere/lib.so", 1);
  setenv("LD_LIBRARY_PATH", "relative", 1);
  EXPECT_EQ(capture({"sh", "-c", "echo $LD_PRELOAD$LD_LIBRARY_PATH"}).out, "\n");
  unsetenv("LD_PRELOAD");
  unsetenv("LD_LIBRARY_PATH");
}

TEST(Capture, MissingProgramIsReported) {
  const Captured result = capture({"no-such-program-here"});
  EXPECT_EQ(result.exit, -1);
  EXPECT_THAT(result.problem, HasSubstr("no-such-program-here cannot be started"));
}

TEST(Capture, EndlessProgramIsKilledWithItsChildren) {
  CaptureOptions options;
  options.timeout_s = 0.2;
  const auto start = std::chrono::steady_clock::now();
  const Captured result = capture({"sh", "-c", "sleep 60 & sleep 60"}, options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(result.exit, -1);
  EXPECT_THAT(result.problem, HasSubstr("did not end within"));
}

TEST(Capture, AProgramThatOnlyClosesItsOutputIsKilledToo) {
  CaptureOptions options;
  options.timeout_s = 0.2;
  const auto start = std::chrono::steady_clock::now();
  const Captured result = capture({"sh", "-c", "exec >&- 2>&-; sleep 60"}, options);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_THAT(result.problem, HasSubstr("did not end within"));
}

TEST(Capture, WhatAProgramLeavesBehindIsNotWaitedForAndEnded) {
  CaptureOptions options;
  options.timeout_s = 60;
  options.whole_tree = true;
  for (const char* script : {"sleep 60 & echo $!", "setsid sleep 60 & echo $!"}) {
    const auto start = std::chrono::steady_clock::now();
    const Captured shell = capture({"sh", "-c", script}, options);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << script;
    EXPECT_EQ(shell.exit, 0) << shell.problem;
    const pid_t left = std::stoi(shell.out);
    bool gone = false;
    for (int i = 0; i < 100 && !gone; ++i) {
      const auto stat = read_stat(left);
      gone = !stat || stat->state == 'Z';
      if (!gone) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(gone) << script;
  }
}

TEST(Capture, LongOutputIsCapped) {
  EXPECT_EQ(capture({"sh", "-c", "head -c 3000000 /dev/zero"}).out.size(), size_t{1} << 20);
}

}  // namespace
}  // namespace harness
