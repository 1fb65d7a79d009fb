// When a second draw is asked, and what it decides.
#include <gtest/gtest.h>

#include <cmath>

#include "suites/conformance/checks/operator_checks.h"

namespace suites {
namespace {

/// Runs a check whose error on the first and on the second draw is given, at tolerance 1.
struct Outcome {
  bool ok = false;
  int draws = 0;
};
Outcome outcome(double first, double second, at::ScalarType type = at::kFloat) {
  OperatorCase one;
  one.type = type;
  one.seed = 5;
  Outcome seen;
  const Checks checks = confirmed(
      [&](const OperatorCase& drawn) {
        ++seen.draws;
        const double err = drawn.seed == one.seed ? first : second;
        return Checks{make_check("oracle/x", err <= 1, code::kOracleMismatch, "seen", err, 1)};
      },
      one);
  seen.ok = checks.size() == 1 && checks[0].ok;
  return seen;
}

TEST(Confirmed, OnlyASmallExcessBelowFp64IsDrawnAgain) {
  EXPECT_TRUE(outcome(0.9, 9).ok);
  EXPECT_EQ(outcome(0.9, 9).draws, 1);
  EXPECT_TRUE(outcome(1.5, 0.9).ok);
  EXPECT_FALSE(outcome(1.5, 1.1).ok);
  EXPECT_EQ(outcome(1.5, 1.1).draws, 2);
  EXPECT_FALSE(outcome(2.5, 0).ok);
  EXPECT_FALSE(outcome(1.5, 0, at::kDouble).ok);
  EXPECT_EQ(outcome(1.5, 0, at::kDouble).draws, 1);
  EXPECT_FALSE(outcome(INFINITY, 0).ok);
  EXPECT_FALSE(outcome(NAN, 0).ok);
}

}  // namespace
}  // namespace suites
