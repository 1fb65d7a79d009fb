#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ScalingPhase : public testing::Test {
 protected:
  TempDir run_;
};

TEST_F(ScalingPhase, IsTheRateOverThatOfAsManySingleOnes) {
  write_training_run(run_.path(), {.args = {{"ranks", 2}}});
  const auto of = [&](const char* base, const json& phases) {
    return look_back(run_.path(), {{"base", base}, {"of", phases}}, run_scaling);
  };
  const auto transcript = of("conform", {"conform"});  // no faster than itself: half of linear
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_NEAR(metric_of(transcript, "efficiency.x2_pct"), 50, 1e-9);
  EXPECT_LT(metric_of(transcript, "efficiency.x2_lo_pct"), 50);
  EXPECT_EQ(metric_of(transcript, "points.measured_count"), 1);
  const json rows = rows_of(transcript, "scaling");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0][0], 1);
  EXPECT_EQ(rows[1][0], 2);
  EXPECT_EQ(rows[1][4], 50);

  const auto none = of("conform", json::array());
  EXPECT_EQ(metric_of(none, "points.measured_count"), 0);
  EXPECT_THAT(end_of(of("speed", {"conform"})), HasSubstr("no phase of this run measures speed."));
  EXPECT_THAT(end_of(of("conform", {"nowhere"})), HasSubstr("no phase of this runbook"));
}

TEST_F(ScalingPhase, OfAPhaseWithoutARateIsNoNumber) {
  write_training_run(run_.path());
  const auto transcript =
      look_back(run_.path(), {{"base", "conform"}, {"of", {"cards"}}}, run_scaling);
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_TRUE(metric_of(transcript, "efficiency.x0_pct").is_null());
  EXPECT_EQ(metric_of(transcript, "points.measured_count"), 0);
}

}  // namespace
}  // namespace harness
