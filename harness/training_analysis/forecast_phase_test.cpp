#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ForecastPhase : public testing::Test {
 protected:
  base::protocol::Transcript forecast(const json& args) {
    return look_back(run_.path(), args, run_forecast);
  }

  TempDir run_;
};

json forecast_args(double price) {
  return {{"of", "conform"}, {"price_per_gpu_hour", price}, {"currency", "EUR"}};
}

// 7200 steps of 1000 tokens at 400 tok/s: 18,000 s.
TEST_F(ForecastPhase, IsTimeAndCostFromTheBoundsOfTheRate) {
  write_training_run(run_.path(), {.args = {{"ranks", 2}}});
  const auto transcript = forecast(forecast_args(3));
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_EQ(metric_of(transcript, "price.set_bool"), true);
  const json rows = rows_of(transcript, "forecast");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(rows[0][0].get<std::string>(), HasSubstr("7200 steps"));
  EXPECT_NEAR(rows[0][1], 5, .02);   // hours
  EXPECT_NEAR(rows[1][1], 10, .04);  // of two GPUs
  EXPECT_NEAR(rows[2][1], 30, .12);  // at 3 EUR
  for (const json& row : rows) {
    EXPECT_LT(row[2], row[1]);
    EXPECT_GT(row[3], row[1]);
  }
}

TEST_F(ForecastPhase, ReportsWhatItDoesNotKnow) {
  write_training_run(run_.path(), {.steps = 5});
  const auto transcript = forecast(forecast_args(0));
  EXPECT_EQ(metric_of(transcript, "price.set_bool"), false);
  const json rows = rows_of(transcript, "forecast");
  EXPECT_TRUE(rows[0][2].is_null()) << "no interval from five steps";
  EXPECT_THAT(rows[2][0].get<std::string>(), HasSubstr("names no price"));
  EXPECT_TRUE(rows[2][1].is_null());
  EXPECT_THAT(end_of(forecast(forecast_args(-1))), HasSubstr("must be >= 0, got -1"));
  json other = forecast_args(0);
  other["of"] = "speed";
  EXPECT_THAT(end_of(forecast(other)), HasSubstr("no phase of this run measures speed.eta"));
}

}  // namespace
}  // namespace harness
