#include "harness/evidence/derive/root_causes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "harness/evidence/derive/findings.h"

namespace harness {
namespace {

using testing::HasSubstr;

Results with_figures(const std::vector<std::pair<std::string, double>>& figures) {
  Results results;
  PhaseResult phase;
  phase.id = "P-train";
  phase.name = "train";
  results.phases.push_back(phase);
  for (const auto& [name, value] : figures) {
    Metric metric;
    metric.id = "M-train." + name;
    metric.name = "train." + name;
    metric.value = value;
    metric.unit = "pct";
    results.metrics.push_back(metric);
  }
  return results;
}

TEST(RootCauses, ARuleSpeaksWhenAllItsFiguresLieAsItReports) {
  const auto found = root_causes(with_figures({{"memory.growth_ratio", 1.5}}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code, "MEMORY_GROWS");
  EXPECT_EQ(found[0].fact, "M-train.memory.growth_ratio");
  EXPECT_THAT(found[0].symptom, HasSubstr("train.memory.growth_ratio 1.5"));
  EXPECT_TRUE(root_causes(with_figures({{"memory.growth_ratio", 1.25}})).empty());
  EXPECT_TRUE(root_causes(with_figures({{"device.busy_pct", 20}})).empty());  // half of a rule
}

TEST(RootCauses, TwoRulesOfOneCodeSpeakOnce) {
  const auto found = root_causes(with_figures({{"device.busy_pct", 20},
                                               {"step.launches_per_step_count", 9000},
                                               {"step.syncs_per_step_count", 400}}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code, "HOST_BOUND");
  EXPECT_THAT(found[0].symptom, HasSubstr("step.launches_per_step_count"));
  EXPECT_THAT(found[0].symptom, HasSubstr("step.syncs_per_step_count 400"));
}

TEST(RootCauses, WhatIsMissingNullOrWithheldReportsNothing) {
  Results results = with_figures({{"memory.growth_ratio", 1.5}});
  results.metrics[0].withheld = "outputs differ";
  EXPECT_TRUE(root_causes(results).empty());
  results.metrics[0].withheld.clear();
  results.metrics[0].value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(root_causes(results).empty());
  results.metrics[0].value.reset();
  EXPECT_TRUE(root_causes(results).empty());
}

TEST(RootCauses, EveryCodeHasItsAdvice) {
  for (const RootCauseRule& rule : root_cause_rules()) {
    EXPECT_FALSE(rule.when.empty());
    EXPECT_NE(advice_for(rule.code).cause, "not known to this program") << rule.code;
  }
}

}  // namespace
}  // namespace harness
