#include "harness/training_analysis/run_so_far.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using testing::HasSubstr;

TEST(RunSoFarTest, FindsPhasesCriteriaAndFigures) {
  const TempDir dir;
  write_training_run(dir.path(), {.gate_tok_s = 300});
  const RunSoFar run = run_so_far(dir.path());
  ASSERT_NE(run.phase("conform"), nullptr);
  EXPECT_EQ(run.phase("conform")->program, "nsa-train");
  ASSERT_NE(run.criterion("C-GATE"), nullptr);
  EXPECT_EQ(run.criterion("C-GATE")->verdict, CriterionVerdict::kPass);
  const Metric* rate = run.figure("conform", "speed.rate_tok_s");
  ASSERT_NE(rate, nullptr);
  EXPECT_NEAR(*rate->value, 400, 1);
  EXPECT_THAT(measured_text(*rate), testing::ContainsRegex("400.* tok/s \\[[0-9.]+, [0-9.]+\\]"));
}

TEST(RunSoFarTest, ReportsWhyThereIsNothing) {
  const TempDir dir;
  write_training_run(dir.path(), {.steps = 0});
  const RunSoFar run = run_so_far(dir.path());
  EXPECT_EQ(run.phase("nowhere"), nullptr);
  EXPECT_EQ(run.criterion("C-GATE"), nullptr);
  EXPECT_EQ(run.figure("conform", "speed.rate_tok_s"), nullptr);
  EXPECT_THAT(run.why_no_figure("conform", "speed.rate_tok_s"), HasSubstr("has no value: "));
  EXPECT_EQ(run.why_no_figure("nowhere", "x"), "no phase of this run measures nowhere.x");
}

TEST(RunSoFarTest, AValueWithoutBoundsReportsIt) {
  Metric metric;
  metric.value = 3;
  metric.unit = "count";
  EXPECT_EQ(measured_text(metric), "3 (no interval)");
}

}  // namespace
}  // namespace harness
