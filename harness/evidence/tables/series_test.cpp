#include "harness/evidence/tables/series.h"

#include <gtest/gtest.h>

namespace harness {
namespace {

using nlohmann::json;

RawGroup group_of(const std::string& id, int64_t steps) {
  RawGroup group{.id = id,
                 .file = "",
                 .unusable = "",
                 .hello = {},
                 .findings = {},
                 .tables = {},
                 .steps = {},
                 .last_step = steps};
  for (int64_t step = 1; step <= steps; ++step)
    group.steps.push_back({.step = step,
                           .of = steps,
                           .at = "step",
                           .rate = 100.0,
                           .rate_unit = "tok_s",
                           .extra = {{"loss", 5.0 - static_cast<double>(step) * 0.1}}});
  return group;
}

Metric figure(const std::string& name, const std::string& unit, double value) {
  Metric metric;
  metric.name = "p." + name;
  metric.phase = "p";
  metric.unit = unit;
  metric.value = value;
  metric.lo = value - 1;
  metric.hi = value + 1;
  return metric;
}

TEST(Series, HeartbeatsGiveLossAndRateALineAProcess) {
  const auto all = step_series("t", {group_of("g01.r0", 4), group_of("g01.r1", 4)});
  ASSERT_EQ(all.size(), 2U) << "no memory was reported";
  EXPECT_EQ(all[0].id, "S-t.loss");
  EXPECT_EQ(all[0].lines.size(), 2U);
  EXPECT_EQ(all[0].lines[1]["name"], "g01.r1");
  EXPECT_EQ(all[0].lines[0]["points"][3], json::array({4, 4.6}));
  EXPECT_EQ(all[1].id, "S-t.rate");
}

TEST(Series, ALineBeginsWithTheStepsBeforeAProcessWentOn) {
  RawGroup group = group_of("g01", 8);
  group.earlier_steps.assign(group.steps.begin(), group.steps.begin() + 4);
  group.steps.erase(group.steps.begin(), group.steps.begin() + 4);
  EXPECT_EQ(step_series("t", {group})[0].lines, step_series("t", {group_of("g01", 8)})[0].lines);
}

TEST(Series, PointsHaveTheDigitsThatALineShows) {
  RawGroup group = group_of("g01", 4);
  group.steps[0].extra["loss"] = 5.6417131423950195;
  EXPECT_EQ(step_series("t", {group})[0].lines[0]["points"][0], json::array({1, 5.641713}));
}

TEST(Series, MemoryIsALineWhereItChanges) {
  RawGroup group = group_of("g01", 4);
  for (base::protocol::Beat& beat : group.steps) beat.mem_mib = 100;
  EXPECT_EQ(step_series("t", {group}).size(), 2U) << "flat";
  group.steps[3].mem_mib = 102;
  EXPECT_EQ(step_series("t", {group})[1].id, "S-t.memory");
}

TEST(Series, HeartbeatsThatNameTheirLineAreLinesOfTheirOwn) {
  RawGroup group = group_of("g01", 8);
  for (size_t i = 0; i < 8; ++i) group.steps[i].extra["line"] = i < 4 ? "nsa" : "dense";
  const auto all = step_series("t", {group});
  ASSERT_EQ(all[0].lines.size(), 2U);
  EXPECT_EQ(all[0].lines[0]["name"], "dense");
  EXPECT_EQ(all[0].lines[1]["points"].size(), 4U);
}

TEST(Series, KeptOutRowsAreALineBesideTheTrainedOnes) {
  RawGroup group = group_of("g01", 8);
  for (size_t i = 1; i < 8; i += 2) group.steps[i].extra["validation_loss"] = 4.0;
  const auto all = step_series("t", {group});
  ASSERT_EQ(all[0].lines.size(), 2U);
  EXPECT_EQ(all[0].lines[1]["name"], "g01, kept out");
  EXPECT_EQ(all[0].lines[1]["points"][0], json::array({2, 4.0}));
  EXPECT_EQ(all[1].lines.size(), 1U) << "the rate has none";
}

TEST(Series, TwoPointsAreNoLine) { EXPECT_TRUE(step_series("t", {group_of("g01", 2)}).empty()); }

TEST(Series, ARateOfAnotherUnitIsNotShownAsTokens) {
  RawGroup group = group_of("g01", 5);
  for (auto& beat : group.steps) beat.rate_unit = "case_s";
  EXPECT_EQ(step_series("t", {group}).size(), 1U);
}

TEST(Series, ThinningKeepsExtremesOrderAndCount) {
  json points = json::array();
  for (int i = 0; i < 10'000; ++i) points.push_back({i, i == 4321 ? 99 : i == 777 ? -99 : i % 7});
  const json kept = thinned(points, 400);
  EXPECT_LE(kept.size(), 400U);
  EXPECT_NE(std::find(kept.begin(), kept.end(), json({4321, 99})), kept.end());
  EXPECT_NE(std::find(kept.begin(), kept.end(), json({777, -99})), kept.end());
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_LT(kept[i - 1][0], kept[i][0]);
  EXPECT_EQ(thinned(points, 10'000), points);
}

TEST(Series, TablesOverASizeGiveOneSeriesAUnit) {
  KindSpec kind;
  kind.tables = {{.id = "scaling",
                  .title = "Scaling",
                  .columns = {"layers", "forward", "backward", "overhead"},
                  .rows = {{"1", "=f1_ms", "=b1_ms", "=o1_pct"},
                           {"2", "=f2_ms", "=gone_ms", "=o2_pct"},
                           {"12", "=f3_ms", "=b3_ms", "=o3_pct"}}}};
  std::vector<Metric> figures;
  for (const char* n : {"1", "2", "3"}) {
    figures.push_back(figure("f" + std::string(n) + "_ms", "ms", 10));
    figures.push_back(figure("b" + std::string(n) + "_ms", "ms", 20));
    figures.push_back(figure("o" + std::string(n) + "_pct", "pct", 0.5));
  }
  const auto all = scaling_series(kind, "p", figures);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].id, "S-p.scaling.ms");
  ASSERT_EQ(all[0].lines.size(), 1U) << "a line of two points is none";
  EXPECT_EQ(all[0].lines[0]["points"][2], json::array({12.0, 10.0, 9.0, 11.0}));
  EXPECT_EQ(all[1].unit, "pct");
  figures[0].withheld = "output mismatch";
  EXPECT_EQ(scaling_series(kind, "p", figures).size(), 1U) << "a withheld figure is not drawn";
}

TEST(Series, TablesOverNamesGiveNone) {
  KindSpec kind;
  kind.tables = {{.id = "t",
                  .title = "T",
                  .columns = {"arm", "time"},
                  .rows = {{"v1", "=a_ms"}, {"v2", "=a_ms"}, {"v3", "=a_ms"}}},
                 {.id = "u",
                  .title = "U",
                  .columns = {"n", "time"},
                  .rows = {{"1", "=a_ms"}, {"1", "=a_ms"}, {"0", "=a_ms"}}}};
  const std::vector<Metric> figures = {figure("a_ms", "ms", 1)};
  EXPECT_TRUE(scaling_series(kind, "p", figures).empty());
}

TEST(Series, LimitsAreThoseOfTheFigureThatIsShown) {
  auto all = step_series("t", {group_of("g01", 5)});
  CriterionResult loss;
  loss.id = "C-loss";
  loss.metric = "t.loss.last20_nat";
  loss.op = "<";
  loss.threshold = 2.9;
  loss.unit = "nat";
  CriterionResult other = loss;
  other.metric = "u.loss.last20_nat";
  CriterionResult unresolved = loss;
  unresolved.threshold.reset();
  add_limits(all, {loss, other, unresolved});
  EXPECT_EQ(all[0].limits, json({{{"criterion", "C-loss"}, {"op", "<"}, {"value", 2.9}}}));
  EXPECT_TRUE(all[1].limits.empty());
}

}  // namespace
}  // namespace harness
