#include "harness/evidence/formulas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/stats/estimators/estimators.h"

namespace harness {
namespace {

using testing::HasSubstr;
using testing::Not;

MetricSpec spec(const std::string& estimator, const std::string& source = "",
                const std::vector<std::string>& arms = {}) {
  MetricSpec spec;
  spec.name = "x_ms";
  spec.estimator = estimator;
  spec.source = source;
  spec.arms = arms;
  return spec;
}

TEST(Formulas, EveryEstimatorHasOne) {
  for (const auto& [name, function] : estimators()) {
    EXPECT_NE(formula_of(spec(std::string(name))), "") << name;
    EXPECT_THAT(formula_of(spec(std::string(name))), Not(HasSubstr("{"))) << name;
  }
  EXPECT_EQ(formula_of({}), "");
  EXPECT_EQ(formula_of(spec("medians")), "");
}

TEST(Formulas, NameTheirSource) {
  EXPECT_THAT(formula_of(spec("median", "step.off")), HasSubstr("series 'step.off', with"));
  EXPECT_THAT(formula_of(spec("max")), HasSubstr("lines 'x_ms'"));
  EXPECT_THAT(formula_of(spec("max", "y_ms")), HasSubstr("lines 'y_ms'"));
  EXPECT_THAT(formula_of(spec("checks_run")), HasSubstr("starts with ''")) << "every check counts";
  EXPECT_THAT(formula_of(spec("checks_failed", "B1.")), HasSubstr("starts with 'B1.'"));
}

TEST(Formulas, NameBothArmsInTheOrderOfTheQuotient) {
  EXPECT_THAT(formula_of(spec("paired_ratio", "", {"off", "on"})), HasSubstr("ln('off' / 'on')"));
  EXPECT_THAT(formula_of(spec("paired_overhead", "", {"a", "b"})), HasSubstr("ln('a' / 'b')"));
}

/// A name may hold a placeholder of its own.
TEST(Formulas, ANameIsNoTemplate) {
  EXPECT_THAT(formula_of(spec("max", "{source}")), HasSubstr("lines '{source}'"));
}

}  // namespace
}  // namespace harness
