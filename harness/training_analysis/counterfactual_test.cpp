#include "harness/training_analysis/counterfactual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> names(const std::vector<Factor>& factors) {
  std::vector<std::string> found;
  for (const Factor& factor : factors) found.push_back(factor.name);
  return found;
}

TEST(PlanFactors, OneForEachSettingThatIsNotRecommendedAndAllTogether) {
  const TrainSettings settings{{{"batch", 1}, {"dtype", "fp32"}, {"steps", 60}},
                               {{"NSA_USE_SEL_MASK", "1"}}};
  const json recommended = {
      {"batch", 8}, {"dtype", "fp32"}, {"NSA_USE_SEL_MASK", nullptr}, {"NSA_NVTX", "0"}};
  const auto factors = plan_factors(settings, recommended);
  EXPECT_EQ(names(factors),
            (std::vector<std::string>{"NSA_NVTX", "NSA_USE_SEL_MASK", "batch", "together"}));
  EXPECT_EQ(factors[2].settings.args["batch"], 8);
  EXPECT_EQ(factors[2].settings.switches, settings.switches) << "one factor at a time";
  EXPECT_EQ(factors[1].settings.args, settings.args);
  EXPECT_TRUE(factors[1].settings.switches.empty());
  EXPECT_EQ(factors[3].settings.switches.at("NSA_NVTX"), "0");
  EXPECT_EQ(factors[3].settings.args["batch"], 8);
}

TEST(PlanFactors, NothingToChangeIsNoFactor) {
  EXPECT_TRUE(plan_factors({{{"batch", 8}}, {}}, {{"batch", 8}}).empty());
  EXPECT_EQ(names(plan_factors({{{"batch", 1}}, {}}, {{"batch", 8}})),
            std::vector<std::string>{"batch"});
}

TEST(AttributeGap, SharesMultiplyUp) {
  const auto gap = attribute_gap(
      {100, 95, 105}, 400,
      {{"dtype", {200, 190, 210}}, {"batch", {200, 195, 205}}, {"together", {390, 380, 400}}});
  EXPECT_DOUBLE_EQ(gap.gap, 4);
  EXPECT_NEAR(gap.explained_pct, 100, 1e-9);
  EXPECT_EQ(gap.factors[0].name, "together");
  EXPECT_NEAR(gap.factors[1].share_pct, 50, 1e-9);
  EXPECT_NEAR(gap.factors[1].lo, 190.0 / 105, 1e-12);
  EXPECT_NEAR(gap.factors[1].hi, 210.0 / 95, 1e-12);
}

TEST(AttributeGap, AFactorThatDoesNothingOrHarmsIsShownAsSuch) {
  const auto gap = attribute_gap({100, 90, 110}, 200, {{"a", {100, 90, 110}}, {"b", {50, 45, 55}}});
  EXPECT_NEAR(gap.factors[0].share_pct, 0, 1e-9);
  EXPECT_LT(gap.factors[1].share_pct, 0);
  EXPECT_LT(gap.factors[0].lo, 1);
  EXPECT_GT(gap.factors[0].hi, 1);
}

TEST(AttributeGap, WithoutAGapThereIsNothingToShare) {
  const auto gap = attribute_gap({100, 95, 105}, 80, {{"batch", {150, 140, 160}}});
  EXPECT_DOUBLE_EQ(gap.factors[0].gain, 1.5);
  EXPECT_EQ(gap.factors[0].share_pct, 0);
  EXPECT_EQ(gap.explained_pct, 0);
}

TEST(RunCounterfactual, WithoutFactorOrProgramItReportsWhy) {
  CounterfactualPlan plan;
  plan.program = "/nonexistent/nsa-train";
  plan.settings.args = {{"batch", 8}};
  plan.recommended = {{"batch", 8}};
  EXPECT_THAT(run_counterfactual(plan, "c", nullptr).problem, HasSubstr("in force"));
  plan.recommended = {{"batch", 16}};
  EXPECT_THAT(run_counterfactual(plan, "c", nullptr).problem, HasSubstr("base run gave no rate"));
}

}  // namespace
}  // namespace harness
