#include "harness/evidence/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/derive.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/temp_dir.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

json baseline(const json& value, const std::string& hw_key = "cpu-Invented_CPU") {
  return {{"schema", "nsa-baseline/1"},
          {"runbook", "mini"},
          {"hw_key", hw_key},
          {"metrics", {{"speed.v2_ms", {{"value", value}}}}}};
}

CriterionResult judged(const json& file) {
  TempDir dir;
  write_mini_run(dir.path(), {.baseline = file, .criterion_on_baseline = true});
  for (const CriterionResult& c : derive(dir.path()).criteria)
    if (c.id == "C-SPEED-BASE") return c;
  throw std::runtime_error("no criterion");
}

TEST(Baselines, FittingBaselineDecides) {
  EXPECT_EQ(judged(baseline(2.0)).verdict, CriterionVerdict::kPass);
  EXPECT_NEAR(judged(baseline(2.0)).threshold.value(), 2.2, 1e-12);
  EXPECT_EQ(judged(baseline(1.0)).verdict, CriterionVerdict::kFail);
}

TEST(Baselines, UnusableOnesAreBaselineInvalidAndNeverPass) {
  const std::vector<json> bad = {nullptr,
                                 baseline(0),
                                 baseline(-1),
                                 baseline(nullptr),
                                 baseline("2"),
                                 baseline(2.0, "NVIDIA_A100-300W-550"),
                                 json{{"schema", "nsa-baseline/1"}},
                                 json::array()};
  for (const json& file : bad) {
    const CriterionResult c = judged(file);
    EXPECT_EQ(c.verdict, CriterionVerdict::kNotEvaluated) << file;
    EXPECT_THAT(c.reason, StartsWith("BASELINE_INVALID")) << file;
  }
}

TEST(Baselines, HardwareKeyNamesCardPowerAndDriver) {
  const json environment = {
      {"gpu",
       {{"driver", "580.65.06"}, {"gpus", {{{"name", "NVIDIA H200"}, {"power_limit_w", 700}}}}}}};
  EXPECT_EQ(hardware_key(environment), "NVIDIA_H200-700W-580");
  EXPECT_EQ(hardware_key(json::object()), "cpu-unknown");
}

}  // namespace
}  // namespace harness
