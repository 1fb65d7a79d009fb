#include "harness/runbook/checks/require.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using testing::HasSubstr;

TEST(Glob, StarsAndQuestionMarks) {
  EXPECT_TRUE(glob_match("*A100*", "NVIDIA A100 80GB PCIe"));
  EXPECT_TRUE(glob_match("A?00", "A100"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a*b*c", "axxbyybzzc"));
  EXPECT_FALSE(glob_match("*A100*", "NVIDIA H200"));
  EXPECT_FALSE(glob_match("A100", "A100 "));
  EXPECT_FALSE(glob_match("", "a"));
}

TEST(Glob, ManyStarsStayFast) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(5000, 'a')));
}

TEST(Requirement, NumbersCompare) {
  const Facts facts = {{"gpu.count", 2}, {"gpu.cc", 9.0}};
  EXPECT_EQ(check_requirement("gpu.count", ">=2", facts).cause, "");
  EXPECT_EQ(check_requirement("gpu.count", 2, facts).cause, "");
  EXPECT_EQ(check_requirement("gpu.cc", ">8.6", facts).cause, "");
  const Unmet unmet = check_requirement("gpu.count", ">=4", facts);
  EXPECT_EQ(unmet.cause, "GPU_COUNT");
  EXPECT_EQ(unmet.reason, "gpu.count is 2, want >=4: run on a machine with that many GPUs");
}

TEST(Requirement, UnknownFactsMeetNothing) {
  for (const auto& want : {">=0", "<=100"})
    EXPECT_EQ(check_requirement("gpu.free_mib", want, {}).cause, "GPU_NOT_FREE");
  EXPECT_THAT(check_requirement("gpu.sku", "*", {}).reason, HasSubstr("gpu.sku is unknown"));
  EXPECT_EQ(check_requirement("gpu.sku", "*", {{"gpu.sku", nullptr}}).cause, "GPU_SKU_MISMATCH");
  EXPECT_EQ(check_requirement("data.local_text", true, {}).cause, "DATA_MISSING");
}

TEST(Requirement, FactsOfAnotherTypeMeetNothing) {
  EXPECT_EQ(check_requirement("gpu.count", ">=1", {{"gpu.count", "many"}}).cause, "GPU_COUNT");
  EXPECT_EQ(check_requirement("cupti.ok", true, {{"cupti.ok", 1}}).cause, "CUPTI_UNAVAILABLE");
  EXPECT_EQ(check_requirement("gpu.count", "<=1", {{"gpu.count", std::nan("")}}).cause,
            "GPU_COUNT");
}

TEST(Requirement, MalformedOnesAreNamed) {
  EXPECT_EQ(requirement_problem("gpu.count", ">=1"), "");
  EXPECT_EQ(requirement_problem("data.fineweb_edu", true), "");
  EXPECT_THAT(requirement_problem("gpu.cuont", ">=1"), HasSubstr("did you mean 'gpu.count'?"));
  EXPECT_THAT(requirement_problem("data.", true), HasSubstr("unknown fact 'data.'"));
  EXPECT_THAT(requirement_problem("gpu.count", "many"), HasSubstr("comparison like \">=1\""));
  EXPECT_THAT(requirement_problem("gpu.count", "=>1"), HasSubstr("got"));
  EXPECT_THAT(requirement_problem("gpu.count", ">=NaN"), HasSubstr("got"));
  EXPECT_THAT(requirement_problem("gpu.sku", 5), HasSubstr("match a glob, got '5'"));
  EXPECT_THAT(requirement_problem("cupti.ok", "yes"), HasSubstr("true or false"));
}

}  // namespace
}  // namespace harness
