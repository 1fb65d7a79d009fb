#include "harness/change_gate/ci_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_THAT(read_junit("<testsuite><testcase name='a'><skipped/></testcase></testsuite>").problem,
              HasSubstr("holds no test that ran"));
  EXPECT_THAT(read_junit("<html/>").problem, HasSubstr("its root is <html>"));
  EXPECT_THAT(read_junit("PASS").problem, HasSubstr("is no"));
  EXPECT_THAT(read_junit("").problem, HasSubstr("is no"));
}

// A set-up that failed, or a file that was cut and closed again: no case of it says so.
TEST(ReadJunit, ASuiteThatReportsMoreThanItsCasesShowIsNoGreen) {
  for (const char* claim : {"errors='1'", "failures='1'", "tests='9'"}) {
    const std::string inner =
        std::string("<testsuite name='s' ") + claim + "><testcase name='a'/></testsuite>";
    for (const std::string& text : {inner, "<testsuites>" + inner + "</testsuites>"})
      EXPECT_THAT(read_junit(text).problem, HasSubstr("contradicts itself: <testsuite> says"));
  }
  EXPECT_EQ(
      read_junit("<testsuite tests='1' failures='0'><testcase name='a'/></testsuite>").problem, "");
}

}  // namespace
}  // namespace harness
