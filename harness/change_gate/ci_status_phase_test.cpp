// What the phase reports for a JUnit file; reading one is tested in ci_status_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/run_alone.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRedRun = R"(<testsuite><testcase name="a"/><testcase classname="A" name="b">
<failure/></testcase><testcase name="c"><error/></testcase><testcase name="d"><skipped/></testcase>
<testcase name="e"/></testsuite>)";
constexpr const char* kGreen = R"(<testsuite><testcase name="a"/><testcase name="b"/></testsuite>)";

/// Lines of the phase for a file that holds `text`; empty: there is no such file.
base::protocol::Transcript transcript(const std::string& text) {
  const TempDir dir;
  if (!text.empty()) write_bytes(dir / "ci.xml", text);
  return run_alone(dir / "raw.jsonl", {{"file", (dir / "ci.xml").string()}}, run_ci_status);
}

const base::protocol::Check& only_check(const base::protocol::Transcript& transcript) {
  const auto* check =
      find_line<base::protocol::Check>(transcript, [](const auto&) { return true; });
  if (check == nullptr) throw std::runtime_error("no check line");
  return *check;
}

TEST(CiStatusPhase, ARedFileIsAnAnswerWithTheFirstFailure) {
  const auto red = transcript(kRedRun);
  EXPECT_EQ(end_of(red), "ok") << "a red CI is an answer";
  EXPECT_EQ(metric_of(red, "tests.run_count"), 4) << "a skipped test did not run";
  EXPECT_EQ(metric_of(red, "tests.failed_count"), 2);
  EXPECT_EQ(metric_of(red, "tests.skipped_count"), 1);
  const base::protocol::Check& check = only_check(red);
  EXPECT_EQ(check.id, "ci/tests");
  EXPECT_FALSE(check.ok);
  EXPECT_EQ(check.code, "CI_FAILED");
  EXPECT_THAT(check.detail, HasSubstr("5 tests in "));
  EXPECT_THAT(check.detail, HasSubstr(", failed first: A.b"));
}

TEST(CiStatusPhase, AGreenFilePasses) {
  const auto green = transcript(kGreen);
  EXPECT_EQ(metric_of(green, "tests.run_count"), 2);
  EXPECT_EQ(metric_of(green, "tests.failed_count"), 0);
  EXPECT_TRUE(only_check(green).ok);
  EXPECT_EQ(only_check(green).code, "");
}

TEST(CiStatusPhase, WhatReportsNothingFailsTheCaseAndGivesNoFigure) {
  const TempDir dir;
  EXPECT_EQ(end_of(run_alone(dir / "raw.jsonl", nlohmann::json::object(), run_ci_status)),
            "failed: no file is given; use --ci-status FILE");
  EXPECT_THAT(end_of(transcript("")), HasSubstr("is not there"));
  const auto empty = transcript("<testsuite tests='9'/>");
  EXPECT_THAT(end_of(empty), HasSubstr("holds no test case"));
  EXPECT_EQ(metric_of(empty, "tests.failed_count"), "absent");
}

TEST(CiStatusPhase, WhatDidNotRunAndWhatWasFlakyAreCountedAndNamed) {
  const auto mixed = transcript(R"(<testsuite><testcase name="a"/>
<testcase name="b" status="notrun" result="suppressed"/>
<testcase classname="A" name="c"><flakyFailure/></testcase></testsuite>)");
  EXPECT_EQ(metric_of(mixed, "tests.run_count"), 2);
  EXPECT_EQ(metric_of(mixed, "tests.skipped_count"), 1);
  EXPECT_EQ(metric_of(mixed, "tests.flaky_count"), 1);
  EXPECT_TRUE(only_check(mixed).ok);
  EXPECT_THAT(only_check(mixed).detail, HasSubstr("; 1 did not run; 1 flaky, "));
  EXPECT_THAT(only_check(mixed).detail, HasSubstr(" first: A.c"));
}

TEST(CiStatusPhase, AFailureInASecondRootDecidesAndTheRootIsNamed) {
  const auto red = transcript(std::string(kGreen) + kRedRun);
  EXPECT_EQ(metric_of(red, "tests.failed_count"), 2);
  EXPECT_THAT(only_check(red).detail, HasSubstr("failed first: A.b"));
  EXPECT_THAT(only_check(red).detail, HasSubstr("the file holds a second root <testsuite>"));
}

TEST(CiStatusPhase, NothingThatRanGivesNoFigure) {
  const auto idle = transcript(R"(<testsuite><testcase name="a" status="disabled"/></testsuite>)");
  EXPECT_THAT(end_of(idle), HasSubstr("holds no test that ran"));
  EXPECT_EQ(metric_of(idle, "tests.failed_count"), "absent");
  EXPECT_EQ(metric_of(idle, "tests.run_count"), "absent");
}

}  // namespace
}  // namespace harness
