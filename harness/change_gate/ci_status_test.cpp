#include "harness/change_gate/ci_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

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

// A failed set-up, or a truncated file that was closed again: none of its cases shows it.
TEST(ReadJunit, ASuiteThatReportsMoreThanItsCasesShowIsNoGreen) {
  for (const char* claim : {"errors='1'", "failures='1'", "tests='9'"}) {
    const std::string inner =
        std::string("<testsuite name='s' ") + claim + "><testcase name='a'/></testsuite>";
    for (const std::string& text : {inner, "<testsuites>" + inner + "</testsuites>"})
      EXPECT_THAT(read_junit(text).problem, HasSubstr("contradicts itself: <testsuite> declares"));
  }
  EXPECT_EQ(
      read_junit("<testsuite tests='1' failures='0'><testcase name='a'/></testsuite>").problem, "");
}

std::string suite(const std::string& cases, const std::string& counters = "") {
  return "<testsuite name='s' " + counters + ">" + cases + "</testsuite>";
}

constexpr const char* kPassed = "<testcase classname='A' name='passed'/>";
constexpr const char* kFailed = "<testcase classname='A' name='bad'><failure/></testcase>";

/// As ctest --output-junit writes a disabled test, a missing program and a SKIP_RETURN_CODE.
constexpr const char* kCtest = R"xml(<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)" tests="3" failures="0" disabled="1" skipped="2" hostname="" time="0">
  <testcase name="disabled_one" classname="disabled_one" time="0" status="disabled">
    <system-out>Disabled</system-out></testcase>
  <testcase name="missing_program" classname="missing_program" time="0" status="notrun">
    <skipped message="Unable to find executable"/><system-out/></testcase>
  <testcase name="skipped" classname="skipped" time="0.001" status="notrun">
    <skipped message="SKIP_RETURN_CODE=77"/><system-out></system-out></testcase>
</testsuite>)xml";

TEST(ReadJunit, ATestThatDidNotRunIsNoPass) {
  for (const std::string not_run : {
           "<testcase name='t' status='notrun'/>",
           "<testcase name='t' status='disabled'/>",
           "<testcase name='t' status='notrun' result='suppressed'/>",
           "<testcase name='t' status='run' result='skipped'/>",
           "<testcase name='t' status='run' result='suppressed'/>",
           "<testcase name='t' status='run' result='completed'><skipped/></testcase>",
           "<testcase name='t'><skipped message='xfail' type='pytest.xfail'/></testcase>",
       }) {
    const CiStatus none = read_junit(suite(not_run));
    EXPECT_THAT(none.problem, HasSubstr("holds no test that ran: 1 of 1")) << not_run;
    const CiStatus one = read_junit(suite(not_run + kPassed));
    EXPECT_EQ(one.problem, "") << not_run;
    EXPECT_EQ(one.skipped, 1) << not_run;
    EXPECT_EQ(read_junit(suite(not_run + kFailed)).failed, 1) << not_run;
  }
  EXPECT_THAT(read_junit(kCtest).problem, HasSubstr("holds no test that ran: 3 of 3"));
}

TEST(ReadJunit, AFailureOutranksEverything) {
  for (const char* test : {
           "<testcase status='fail'/>",
           "<testcase status='fail'><skipped/></testcase>",
           "<testcase status='notrun'><skipped/><failure/></testcase>",
           "<testcase result='suppressed'><error/></testcase>",
           "<testcase status='odd'><failure/></testcase>",
           "<testcase><failure/><flakyFailure/></testcase>",
           "<testcase><failure/><error/></testcase>",
       }) {
    const CiStatus red = read_junit(suite(test));
    EXPECT_EQ(red.problem, "") << test;
    EXPECT_EQ(red.failed, 1) << test << ": each case counts once";
    EXPECT_EQ(red.tests, 1) << test;
  }
  EXPECT_EQ(read_junit(suite(kPassed + suite(suite(kFailed)))).first_failed, "A.bad") << "nested";
  const CiStatus outside = read_junit(suite(kPassed + std::string("<error message='set-up'/>")));
  EXPECT_EQ(outside.failed, 1);
  EXPECT_THAT(outside.first_failed, HasSubstr("s (outside of its test cases)"));
  const CiStatus cut = read_junit("<testsuite>" + std::string(kFailed) + "<testcase name='");
  EXPECT_EQ(cut.failed, 1) << "a file that was cut off behind a failure";
  EXPECT_THAT(cut.remark, HasSubstr("is no XML"));
}

TEST(ReadJunit, AnUnknownStatusOrResultIsRefusedByName) {
  for (const char* word : {"status='passed'", "status='RUN'", "status=''", "result='ok'",
                           "result='Completed'", "status='run' result='failed'"}) {
    const std::string test = std::string("<testcase classname='A' name='odd' ") + word + "/>";
    EXPECT_THAT(read_junit(suite(test + kPassed)).problem, HasSubstr("at test A.odd; known: "))
        << word;
  }
  EXPECT_THAT(read_junit(suite("<testcase name='t' status='passed'/>")).problem,
              HasSubstr("unknown status 'passed'"));
}

TEST(ReadJunit, ASecondRootIsNoGreen) {
  const std::string green = suite(kPassed), red = suite(kFailed),
                    idle = suite("<testcase status='disabled'/>"),
                    declaration = "<?xml version='1.0'?>\n", mark = "\xef\xbb\xbf";
  const auto wrapped = [](const std::string& inner) {
    return "<testsuites name='second'>" + inner + "</testsuites>";
  };
  for (const std::string& text :
       {green + red, red + green, green + green + wrapped(red),
        declaration + wrapped(green) + "\n" + declaration + wrapped(red),
        mark + declaration + green + mark + declaration + red, idle + red, "<html/>" + red}) {
    const CiStatus status = read_junit(text);
    EXPECT_EQ(status.failed, 1) << text;
    EXPECT_EQ(status.first_failed, "A.bad") << text;
    EXPECT_NE(status.remark, "") << text;
  }
  for (const std::string& second : {green, wrapped(green), idle, std::string("<testsuites/>")})
    EXPECT_THAT(read_junit(green + second).problem, HasSubstr("holds a second root <testsuite"));
  EXPECT_THAT(read_junit(green + wrapped(green)).problem,
              HasSubstr("<testsuites name=\"second\"> behind <testsuite name=\"s\">"));
  EXPECT_EQ(read_junit(mark + declaration + "<!-- CI -->" + green + "<!-- end -->\n").problem, "");
}

TEST(ReadJunit, CountersThatContradictTheCasesAreNamed) {
  const std::string idle = "<testcase><skipped/></testcase>";
  for (const auto& [counters, problem] :
       {std::pair("tests='1'", "1 tests, its cases are 2"),
        std::pair("tests='3'", "3 tests, its cases are 2"),
        std::pair("failures='1'", "1 failed, its cases are 0"),
        std::pair("tests='2' errors='2'", "2 failed, its cases are 0"),
        std::pair("skipped='0'", "0 skipped or disabled, its cases are 1"),
        std::pair("skipped='2'", "2 skipped or disabled, its cases are 1"),
        std::pair("disabled='2'", "2 skipped or disabled, its cases are 1"),
        std::pair("skipped='1' disabled='1'", "2 skipped or disabled, its cases are 1")})
    for (const std::string& text :
         {suite(kPassed + idle, counters),
          "<testsuites>" + suite(kPassed + idle, counters) + "</testsuites>"})
      EXPECT_THAT(read_junit(text).problem, HasSubstr(problem)) << counters;
  EXPECT_THAT(
      read_junit(suite(kPassed + std::string("<testcase status='disabled'/>"), "disabled='0'"))
          .problem,
      HasSubstr("0 skipped or disabled, its cases are 1"));
  for (const char* bad : {"tests='two'", "tests=''", "failures='-1'", "errors='0.5'",
                          "tests='99999999999999999999'", "skipped=' 1'"})
    EXPECT_THAT(read_junit(suite(kPassed, bad)).problem, HasSubstr("a counter is a whole number"))
        << bad;
}

TEST(ReadJunit, ATestThatCtestCouldNotStartIsFailedBesideOthers) {
  for (const char* message : {"Unable to find executable", "Failed test dependencies: a"}) {
    const std::string not_started = "<testcase name='gone' status='notrun'><skipped message='" +
                                    std::string(message) + "'/></testcase>";
    const CiStatus mixed = read_junit(suite(kPassed + not_started, "tests='2' skipped='1'"));
    EXPECT_EQ(mixed.problem, "") << message;
    EXPECT_EQ(mixed.failed, 1) << message;
    EXPECT_EQ(mixed.skipped, 0) << message;
    EXPECT_EQ(mixed.first_failed, ".gone") << message;
    EXPECT_THAT(read_junit(suite(not_started)).problem, HasSubstr("holds no test that ran"));
  }
  const CiStatus asked = read_junit(
      suite(std::string(kPassed) +
            "<testcase status='notrun'><skipped message='SKIP_RETURN_CODE=77'/></testcase>"));
  EXPECT_EQ(asked.failed, 0);
  EXPECT_EQ(asked.skipped, 1);
}

TEST(ReadJunit, CountersOfKnownWritersAgree) {
  const std::string skipped = "<testcase name='k'><skipped/></testcase>",
                    disabled = "<testcase status='notrun' result='suppressed' name='d'/>";
  for (const std::string& text : {
           suite(kPassed),  // none at all
           suite(kPassed + skipped + disabled, "tests='3' skipped='1' disabled='1'"),
           suite(kPassed + skipped + disabled, "tests='3' skipped='2'"),
           suite(kPassed + skipped + disabled, "tests='3' disabled='1'"),
           suite(kPassed + skipped + disabled, "tests='3' disabled='2'"),
           suite(kPassed + suite(kPassed, "tests='1'"), "tests='1'"),
           suite(kPassed + suite(kPassed, "tests='1'"), "tests='2'"),
           "<testsuites name='pytest tests'>" +
               suite(kPassed, "errors='0' failures='0' skipped='0' tests='1'") + "</testsuites>",
           "<testsuites name='jest tests' tests='2' failures='0' errors='0' time='1.2'>" +
               suite(kPassed + skipped, "errors='0' failures='0' skipped='1' tests='2'") +
               "</testsuites>",
       })
    EXPECT_EQ(read_junit(text).problem, "") << text;
  EXPECT_THAT(read_junit("<testsuites tests='0'>" + suite(kPassed) + "</testsuites>").problem,
              HasSubstr("<testsuites> declares 0 tests, its cases are 1"));
}

TEST(ReadJunit, AFlakyTestPassedAtLastAndIsNamed) {
  for (const char* attempt : {"flakyFailure", "flakyError"})
    for (const char* counters : {"", "tests='1' failures='0'", "tests='2' failures='1'",
                                 "tests='1' errors='1'", "tests='1' failures='0' flakes='1'"}) {
      const std::string test = "<testcase classname='A' name='wavers'><" + std::string(attempt) +
                               " message='x'/></testcase>";
      const CiStatus status = read_junit(suite(test, counters));
      EXPECT_EQ(status.problem, "") << attempt << " " << counters;
      EXPECT_EQ(status.failed, 0);
      EXPECT_EQ(status.flaky, 1);
      EXPECT_EQ(status.first_flaky, "A.wavers");
    }
  EXPECT_THAT(read_junit(suite("<testcase><flakyError/></testcase>", "failures='2'")).problem,
              HasSubstr("2 failed, its cases are 0"));
}

TEST(ReadJunit, ATestWhoseRerunsFailedIsFailed) {
  for (const char* test :
       {"<testcase><failure/><rerunFailure/><rerunError/></testcase>",
        "<testcase><error/><rerunError/></testcase>", "<testcase><rerunFailure/></testcase>"}) {
    const CiStatus status = read_junit(suite(test, "tests='1' failures='1'"));
    EXPECT_EQ(status.failed, 1) << test;
    EXPECT_EQ(status.flaky, 0) << test;
    EXPECT_EQ(status.remark, "") << test;
  }
}

TEST(ReadJunit, ATextWithoutACaseIsNoGreen) {
  for (const char* text :
       {"", " \n", "\xef\xbb\xbf", "<?xml version='1.0'?>", "<testsuite/>", "<testsuites/>",
        "<testsuites tests='0'><testsuite tests='0'/></testsuites>",
        "<testsuites><testsuite><properties/></testsuite></testsuites>", "<testcase name='a'/>",
        "<testrun><testsuite/></testrun>", "<testsuite><testcase name='a'/>"})
    EXPECT_NE(read_junit(text).problem, "") << text;
}

}  // namespace
}  // namespace harness
