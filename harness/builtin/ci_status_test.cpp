#include "harness/builtin/ci_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/builtin/builtins.h"
#include "harness/builtin/run_alone.h"
#include "harness/evidence/temp_dir.h"

namespace harness {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRed = R"(<?xml version="1.0"?>
<testsuites tests="4" failures="0"><testsuite name="a"><testcase classname="A" name="one"/>
<testcase classname="A" name="two"><failure message="no"/></testcase></testsuite>
<testsuite><testcase name="three"><skipped/></testcase><testcase name="four"><error/></testcase>
</testsuite></testsuites>)";

TEST(ReadJunit, CountsTheCasesAndBelievesNoTotals) {
  const CiStatus red = read_junit(kRed);
  EXPECT_EQ(red.problem, "");
  EXPECT_EQ(red.tests, 4);
  EXPECT_EQ(red.failed, 2);
  EXPECT_EQ(red.skipped, 1);
  EXPECT_EQ(red.first_failed, "A.two");
  EXPECT_THAT(read_junit("<testsuite tests='7'/>").problem, HasSubstr("holds no test case"));
  EXPECT_THAT(read_junit("<html/>").problem, HasSubstr("its root is <html>"));
  EXPECT_THAT(read_junit("PASS").problem, HasSubstr("is no"));
  EXPECT_THAT(read_junit("").problem, HasSubstr("is no"));
}

/// Figures of the builtin for the file's text; empty text: no such file.
protocol::Transcript said(const std::string& text) {
  const TempDir dir;
  if (!text.empty()) write_bytes(dir / "ci.xml", text);
  return run_alone(dir / "raw.jsonl", {{"file", (dir / "ci.xml").string()}}, run_ci_status);
}

TEST(CiStatusPhase, SaysWhatFailedAndFailsWithoutAFile) {
  const auto red = said(kRed);
  const auto* failed = find_line<protocol::Metric>(
      red, [](const protocol::Metric& m) { return m.name == "tests.failed_count"; });
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->value, 2);
  EXPECT_EQ(red.ended.at("all").status, "ok") << "a red CI is an answer";
  const TempDir dir;
  EXPECT_EQ(
      run_alone(dir / "raw.jsonl", nlohmann::json::object(), run_ci_status).ended.at("all").reason,
      "no file is given; use --ci-status FILE");
  EXPECT_THAT(said("").ended.at("all").reason, HasSubstr("is not there"));
  EXPECT_THAT(said("<testsuite/>").ended.at("all").reason, HasSubstr("holds no test case"));
}

}  // namespace
}  // namespace harness
