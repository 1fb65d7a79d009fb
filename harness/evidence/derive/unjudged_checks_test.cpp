#include "harness/evidence/derive/unjudged_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

Finding failed_check(const std::string& code, Priority priority = Priority::kImmediate) {
  Finding one;
  one.id = "F-scope." + code, one.code = code, one.fact = "P-scope", one.priority = priority;
  one.symptom = "2 checks failed";
  return one;
}

CriterionResult criterion(Severity severity, CriterionVerdict verdict) {
  CriterionResult one;
  one.id = "C-scope.x", one.phase = "scope", one.metric = "scope.x";
  one.severity = severity, one.verdict = verdict;
  return one;
}

size_t deviations_beside(const CriterionResult& one) {
  return unjudged_checks({failed_check("CHECK_FAILED")}, {one}).size();
}

TEST(UnjudgedChecks, AreDeviationsUnlessACriterionOfTheStepStatesThatSomethingIsAmiss) {
  EXPECT_EQ(unjudged_checks({failed_check("CHECK_FAILED")}, {}).at(0).id,
            "D-checks.scope.CHECK_FAILED");
  for (const Severity deciding : {Severity::kBlocker, Severity::kMajor}) {
    EXPECT_EQ(deviations_beside(criterion(deciding, CriterionVerdict::kPass)), 1U);
    EXPECT_EQ(deviations_beside(criterion(deciding, CriterionVerdict::kFail)), 0U);
    EXPECT_EQ(deviations_beside(criterion(deciding, CriterionVerdict::kNotEvaluated)), 0U);
  }
  EXPECT_EQ(deviations_beside(criterion(Severity::kInfo, CriterionVerdict::kFail)), 0U);
  EXPECT_EQ(deviations_beside(criterion(Severity::kInfo, CriterionVerdict::kNotEvaluated)), 1U);
  EXPECT_EQ(deviations_beside(criterion(Severity::kInfo, CriterionVerdict::kInconclusive)), 1U);
  CriterionResult other = criterion(Severity::kMajor, CriterionVerdict::kFail);
  other.phase = "edits", other.metric = "edits.x";
  EXPECT_EQ(deviations_beside(other), 1U);
  other.metric = "scope.x";  // of another step, on a figure of this one
  EXPECT_EQ(deviations_beside(other), 0U);
}

TEST(UnjudgedChecks, WhatIsForLaterOrStatedElsewhereIsNone) {
  EXPECT_TRUE(unjudged_checks({failed_check("MEMORY_GROWS", Priority::kFollowUp)}, {}).empty());
  EXPECT_TRUE(unjudged_checks({failed_check("DATA_SUBSTITUTED")}, {}).empty());
}

}  // namespace
}  // namespace harness
