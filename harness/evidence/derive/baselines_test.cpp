#include "harness/evidence/derive/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/derive/derive.h"
#include "harness/evidence/mini_run.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

/// A baseline of the mini run with one thing changed.
json baseline(const json& value, const std::string& pointer = "/metrics/0/value") {
  json file = mini_baseline();
  file[json::json_pointer(pointer)] = value;
  return file;
}

CriterionResult judged(const json& file) {
  TempDir dir;
  write_mini_run(dir.path(), {.baseline = file, .criterion_on_baseline = true});
  for (const CriterionResult& c : derive(dir.path()).criteria)
    if (c.id == "C-SPEED-BASE") return c;
  throw std::runtime_error("no criterion");
}

TEST(Baselines, FittingBaselineDecides) {
  EXPECT_EQ(judged(mini_baseline()).verdict, CriterionVerdict::kPass);
  EXPECT_NEAR(judged(mini_baseline()).threshold.value(), 2.2, 1e-12);
  json half = mini_baseline();
  half["metrics"][0].update({{"value", 1.0}, {"lo", 0.9}, {"hi", 1.1}});
  EXPECT_EQ(judged(half).verdict, CriterionVerdict::kFail);
}

TEST(Baselines, UnusableOnesAreBaselineInvalidAndNeverPass) {
  const std::vector<json> bad = {nullptr,
                                 baseline(0),
                                 baseline(-1),
                                 baseline(nullptr),
                                 baseline("2"),
                                 baseline(9.0),  // outside its interval
                                 baseline("other", "/runbook"),
                                 baseline("NVIDIA A100", "/hardware/sku"),
                                 baseline(580, "/hardware/driver_major"),
                                 baseline("2.4", "/hardware/libtorch"),
                                 baseline("s", "/metrics/0/unit"),
                                 baseline(0.95, "/metrics/0/level"),
                                 baseline("", "/reason"),
                                 baseline(json::array(), "/metrics"),
                                 json{{"schema", "nsa-baseline/1"}},
                                 json::array()};
  for (const json& file : bad) {
    const CriterionResult c = judged(file);
    EXPECT_EQ(c.verdict, CriterionVerdict::kNotEvaluated) << file;
    EXPECT_THAT(c.reason, StartsWith("BASELINE_INVALID")) << file;
  }
}

TEST(Baselines, HardwareKeyNamesCardPowerDriverAndLibrary) {
  const json environment = {
      {"libraries", {{"libtorch", "2.11"}}},
      {"gpu",
       {{"driver", "580.65.06"}, {"gpus", {{{"name", "NVIDIA H200"}, {"power_limit_w", 700}}}}}}};
  EXPECT_EQ(hardware_key(environment), "nvidia_h200-700w-580-2.11");
  EXPECT_EQ(hardware_key(json::object()), "unknown-0w-0-unknown");
}

}  // namespace
}  // namespace harness
