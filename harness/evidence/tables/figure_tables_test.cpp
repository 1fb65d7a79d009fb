#include "harness/evidence/tables/figure_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using nlohmann::json;

Metric figure(const std::string& name, std::optional<double> value, const std::string& unit) {
  Metric metric;
  metric.phase = "p";
  metric.name = "p." + name;
  metric.value = value;
  metric.unit = unit;
  return metric;
}

KindSpec kind_with_table() {
  KindSpec kind;
  kind.tables = {{.id = "scaling",
                  .title = "Scaling",
                  .columns = {"layers", "forward", "overhead"},
                  .rows = {{"1", "=layers1.forward_ms", "=overhead.layers1_pct"},
                           {"2", "=layers2.forward_ms", "=overhead.layers2_pct"}}}};
  return kind;
}

TEST(KindTables, CellsAreFiguresWithTheirInterval) {
  std::vector<Metric> figures = {figure("layers1.forward_ms", 2, "ms"),
                                 figure("overhead.layers1_pct", 0.5, "pct"),
                                 figure("layers2.forward_ms", std::nullopt, "ms")};
  figures[0].lo = 1.5;
  figures[0].hi = 2.5;
  const auto tables = kind_tables(kind_with_table(), "p", figures);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0]["id"], "p.scaling");
  EXPECT_EQ(tables[0]["rows"][0], json({"1", "2 ms [1.5, 2.5]", "0.5 %"}));
  EXPECT_EQ(tables[0]["rows"][1], json({"2", "none", "–"})) << "no figure is never a number";
}

TEST(KindTables, WithheldFiguresAreReportedToBe) {
  std::vector<Metric> figures = {figure("layers1.forward_ms", std::nullopt, "ms")};
  figures[0].withheld = "not valid, output mismatch";
  EXPECT_EQ(kind_tables(kind_with_table(), "p", figures)[0]["rows"][0][1], "withheld");
}

TEST(TrainingTable, ReportsHowFarAHungRunCame) {
  PlannedPhase plan;
  plan.args = {{"model", "m7c_125m"}, {"data", "synthetic"}, {"seq_len", 512},
               {"batch", 2},          {"accum", 1},          {"steps", 60}};
  PhaseResult result;
  result.id = "P-tput";
  result.status = StepStatus::kFailed;
  result.cause = "HANG";
  RawGroup group;
  group.last_step = 23;
  const auto table = training_table({training_row(plan, result, {group}, {})});
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table[0]["rows"][0], json({"P-tput", "m7c_125m", "synthetic", "512", "2", "1",
                                       "23 of 60", "FAILED HANG", "–", "–", "–", "–"}));
  EXPECT_EQ(table[0]["rows"][0].size(), table[0]["columns"].size());
}

TEST(TrainingTable, IsAbsentWithoutTrainingAndWhereNoKindAsksForIt) {
  EXPECT_TRUE(training_table({}).empty());
  EXPECT_FALSE(declares_training(kind_with_table()));
  KindSpec kind;
  kind.tables = {{.id = "training", .title = "T", .columns = {}, .rows = {}}};
  EXPECT_TRUE(declares_training(kind));
  EXPECT_TRUE(kind_tables(kind, "p", {}).empty()) << "it is one table for all phases";
}

}  // namespace
}  // namespace harness
