#include "harness/evidence/derive/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using testing::HasSubstr;

TEST(Findings, EveryCauseOfAGroupHasItsAdvice) {
  for (const char* cause :
       {"EXIT_CODE",     "CONFIG_ERROR",   "SIGNAL",        "HANG",           "TIMEOUT",
        "NOT_STARTED",   "DISK_FULL",      "INTERRUPTED",   "NO_HELLO",       "HELLO_TWICE",
        "GARBAGE",       "NON_FINITE",     "FOREIGN_CASE",  "DUPLICATE_CASE", "MISSING_CASE",
        "BAD_MODE",      "AFTER_DONE",     "BAD_COUNT",     "NO_DONE",        "NO_TESTS",
        "NO_BUILD_ID",   "BAD_TEST_COUNT", "BAD_TEST_JSON", "BUILTIN_ERROR",  "MISSING_ARTIFACT",
        "OTHER_PROGRAM", "TEST_FAILED",    "TEST_SKIPPED",  "TEST_DISABLED",  "CHECK_FAILED"}) {
    const CodeAdvice advice = advice_for(cause);
    EXPECT_NE(advice.cause, "not known to this program") << cause;
    EXPECT_NE(advice.action, "") << cause;
  }
}

TEST(Findings, AnUnknownCodeReportsSoAndWhereToLook) {
  EXPECT_EQ(advice_for("NEVER_HEARD_OF").cause, "not known to this program");
  EXPECT_THAT(advice_for("NEVER_HEARD_OF").action, HasSubstr("GROUP.err"));
}

TEST(Findings, AFailedPhaseHasCauseAndAction) {
  PhaseResult result;
  result.id = "P-train";
  result.name = "train";
  result.status = StepStatus::kFailed;
  result.cause = "EXIT_CODE";
  result.reason = "g01: exit status 3, want 0; its last words: no such model; see g01.err";
  const auto findings = phase_findings(result, {}, {});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].id, "F-train.phase");
  EXPECT_EQ(findings[0].code, "EXIT_CODE");
  EXPECT_THAT(findings[0].symptom, HasSubstr("its last words: no such model"));
  EXPECT_NE(findings[0].cause, "");
  EXPECT_NE(findings[0].action, "");
  EXPECT_EQ(findings[0].priority, Priority::kImmediate);
}

TEST(Findings, AFigureThatAWorkerNamesIsItsFact) {
  PhaseResult result;
  result.id = "P-train";
  result.name = "train";
  RawPhase raw;
  raw.view.groups.emplace_back().metrics.push_back({"c", "loader.stall_ratio", 0.4, "ratio", ""});
  for (const char* fact : {"loader.stall_ratio", "loader.unknown_ratio", "C-x.y"})
    raw.groups.emplace_back().findings.push_back(
        {.code = "LOADER_STALL", .symptom = "slow", .fact = fact});
  const auto findings = phase_findings(result, raw, {});
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[0].fact, "M-train.loader.stall_ratio");
  EXPECT_EQ(findings[1].fact, "P-train");
  EXPECT_EQ(findings[2].fact, "C-x.y");
}

TEST(Findings, FailedChecksAreOneFindingACode) {
  PhaseResult result;
  result.id = "P-x";
  result.name = "x";
  result.status = StepStatus::kCompleted;
  RawPhase raw;
  GroupEvidence group;
  for (const char* code : {"CAUSALITY_LEAK", "CAUSALITY_LEAK", ""}) {
    CheckLine check;
    check.id = "id";
    check.code = code;
    check.ok = false;
    group.checks.push_back(check);
  }
  raw.view.groups = {group};
  const auto findings = check_findings(result, raw);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_THAT(findings[0].symptom, HasSubstr("2 checks failed, first id"));
  EXPECT_EQ(findings[1].code, "CHECK_FAILED");
}

}  // namespace
}  // namespace harness
