#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/ingest/testing.h"

namespace harness {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kReport = R"({"tests": 4, "failures": 1, "name": "AllTests", "testsuites": [
  {"name": "A", "tests": 3, "testsuite": [
    {"name": "Good", "status": "RUN", "result": "COMPLETED", "time": "0.1s", "classname": "A"},
    {"name": "Bad", "status": "RUN", "result": "COMPLETED", "code": "CAUSALITY_LEAK",
     "failures": [{"failure": "file.cpp:3\n|`<script>", "type": ""}]},
    {"name": "Skipped", "status": "RUN", "result": "SKIPPED"}]},
  {"name": "B/Each", "testsuite": [{"name": "DISABLED_Off/0", "status": "NOTRUN", "result": "SUPPRESSED"}]}]})";
const std::vector<std::string> kPlanned = {"A.Good", "A.Bad", "A.Skipped", "B/Each.DISABLED_Off/0"};

TEST(GtestList, NamesSuitesAndParameters) {
  EXPECT_THAT(parse_gtest_list("Running main() from gtest_main.cc\nA.\n  Good\n  Bad\n"
                               "B/Each.  # TypeParam = int\n  DISABLED_Off/0  # GetParam() = 3\n"),
              ElementsAre("A.Good", "A.Bad", "B/Each.DISABLED_Off/0"));
  EXPECT_THAT(parse_gtest_list(""), IsEmpty());
}

TEST(GtestJson, OnlyWhatRanAndHeldIsOk) {
  const auto got = ingest_with(ingest_gtest, kReport, kPlanned);
  EXPECT_EQ(got.verdict.cause, "");
  EXPECT_THAT(got.transcript.violations, IsEmpty());
  std::vector<std::string> codes;
  for (const auto& line : got.transcript.lines)
    if (const auto* check = std::get_if<base::protocol::Check>(&line.message))
      codes.push_back(check->ok ? "ok" : check->code);
  EXPECT_THAT(codes, ElementsAre("ok", "CAUSALITY_LEAK", "TEST_SKIPPED", "TEST_DISABLED"));
  EXPECT_EQ(got.transcript.ended.at("c").status, "failed");
  EXPECT_EQ(got.transcript.ended.at("c").reason, "3 of 4 tests did not pass, first: A.Bad");
  EXPECT_EQ(std::get<base::protocol::Check>(got.transcript.lines[2].message).detail,
            "file.cpp:3\n|`<script>");
}

TEST(GtestJson, WhatRanMustBeWhatWasPlanned) {
  auto fewer = kPlanned;
  fewer.pop_back();
  EXPECT_EQ(ingest_with(ingest_gtest, kReport, fewer).verdict.cause, "BAD_TEST_COUNT");
  auto more = kPlanned;
  more.push_back("A.Gone");
  const auto got = ingest_with(ingest_gtest, kReport, more);
  EXPECT_EQ(got.verdict.reason, "4 tests ran, 5 were planned; missing: A.Gone");
  EXPECT_THAT(got.transcript.lines, IsEmpty());
}

TEST(GtestJson, ZeroTestsAreNoPass) {
  const auto got = ingest_with(ingest_gtest, R"({"tests": 0, "testsuites": []})", {});
  EXPECT_EQ(got.verdict.cause, "NO_TESTS");
}

TEST(GtestJson, ACutReportIsNamed) {
  const std::string report = kReport;
  for (const size_t cut : {size_t{0}, report.size() / 2, report.size() - 1})
    EXPECT_EQ(ingest_with(ingest_gtest, report.substr(0, cut), kPlanned).verdict.cause,
              "BAD_TEST_JSON");
}

}  // namespace
}  // namespace harness
