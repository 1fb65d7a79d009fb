#include <gmock/gmock.h>

#include <limits>

#include "reports/plots/data.h"
#include "reports/plots/plot.h"
#include "reports/testing.h"

namespace reports {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

harness::Series loss_series() {
  harness::Series series;
  series.id = "S-t.loss";
  series.phase = "t";
  series.title = "Loss over steps";
  series.kind = "steps";
  series.x = "step";
  series.unit = "nat";
  series.lines = {{{"name", "g01"}, {"seen", 3}, {"points", {{1, 5.5}, {2, 4.5}, {3, 3.5}}}}};
  series.limits = {{{"criterion", "C-loss"}, {"op", "<"}, {"value", 4.0}}};
  return series;
}

harness::Metric paired(const std::string& name, double speedup) {
  harness::Metric m = testing_data::comparison(name, "FASTER", speedup);
  m.details["margin_in_force_pct"] = 1.0;
  for (int i = 1; i <= 3; ++i)
    m.details["processes"].push_back({{"process", "g0" + std::to_string(i)},
                                      {"speedup", speedup + 0.001 * i},
                                      {"baseline", 2.0},
                                      {"candidate", 1.0}});
  return m;
}

TEST(Plots, ComparisonsGiveAForestAndTheirPairs) {
  harness::Results results = testing_data::go();
  results.metrics = {paired("p.a.speedup_ratio", 1.02), paired("p.b.speedup_ratio", 190)};
  results.metrics.push_back(paired("p.c.speedup_ratio", 2));
  results.metrics.back().withheld = "output mismatch";
  const auto all = plots(Model(results));
  ASSERT_EQ(all.size(), 3U) << "a withheld comparison is not drawn";
  EXPECT_THAT(all[0].data, HasSubstr("1.02\t2\t1.0098\t1.0302\tp.a.speedup_ratio\n"));
  EXPECT_THAT(all[0].table, HasSubstr("`M-p.a.speedup_ratio`"));
  EXPECT_THAT(all[1].data, HasSubstr("1\t1.021\tg01\n"));
  EXPECT_THAT(all[1].alt, HasSubstr("margin of no difference"));
  EXPECT_THAT(all[2].alt, Not(HasSubstr("margin"))) << "1 is too far from 190 to be in the picture";
  EXPECT_THAT(all[1].table, HasSubstr("`g03`"));
}

TEST(Plots, TablesOfPercentagesAreHeatMaps) {
  harness::Results results = testing_data::go();
  const json cells = {{"id", "read.nsa.heat_map"},
                      {"title", "Digits"},
                      {"columns", {"tokens by depth, %", "0", "100"}},
                      {"rows", {{192, 100, 0}, {256, 50.0, 99.5}}}};
  results.tables = {cells};
  const auto all = plots(Model(results));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].phase, "read");
  EXPECT_THAT(all[0].data, HasSubstr("1\t2\t100\t7317724\t0\t192\n"));
  EXPECT_THAT(all[0].data, HasSubstr("2\t2\t0\t16777215\t100\t192\n"));
  EXPECT_THAT(all[0].alt, HasSubstr("2 by 2 cells, the least 0 %"));
  EXPECT_THAT(all[0].script, HasSubstr("set xlabel \"depth, %\"\nset ylabel \"tokens\"\n"));
  EXPECT_THAT(all[0].table, HasSubstr("99.5"));
  for (const json& row : {json{192, 100}, json{192, 100, "none"}, json(192)}) {
    results.tables = {cells};
    results.tables[0]["rows"][1] = row;
    EXPECT_TRUE(plots(Model(results)).empty()) << row;
  }
}

TEST(Plots, ComparisonsWithTheOracleShowTheShareOfTheirAllowance) {
  harness::Results results = testing_data::go();
  results.tables = {{{"id", "operators.agreement"},
                     {"columns", {"comparison", "error over allowance"}},
                     {"rows",
                      {{"oracle/rope/fp32/q_rot", "c1", 0.01},
                       {"oracle/gate/bf16/o", "c2", 0.75},
                       {"oracle/bad/fp32/x", "c3", nullptr},
                       {"oracle/tiny/fp64/x", "c4", 1e-9}}}}};
  const auto all = plots(Model(results));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "agreement-operators.agreement");
  EXPECT_THAT(all[0].data, testing::StartsWith("0.75\t3\toracle/gate/bf16/o\n0.01\t2\t"));
  EXPECT_THAT(all[0].data, HasSubstr("0.001\t1\toracle/tiny"));
  EXPECT_THAT(all[0].data, Not(HasSubstr("bad")));
  EXPECT_THAT(all[0].alt, HasSubstr("the largest share 0.75"));
  EXPECT_THAT(all[0].table, HasSubstr("1e-09")) << "the table has the number itself";
}

TEST(Plots, SeriesShowTheirLimitsAndReportTheSameInATable) {
  harness::Results results = testing_data::go();
  results.series = {loss_series()};
  const auto all = plots(Model(results));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].name, "S-t.loss");
  EXPECT_EQ(all[0].data,
            "x\tg01\tlo\thi\n1\t5.5\t5.5\t5.5\n2\t4.5\t4.5\t4.5\n3\t3.5\t3.5\t3.5\n\n\n");
  EXPECT_THAT(all[0].script, HasSubstr("first 4 to graph 1, first 4"));
  EXPECT_THAT(all[0].table,
              AllOf(HasSubstr("5.5"), HasSubstr("Threshold of `C-loss`: &lt; 4 nat")));
}

TEST(Plots, AFarLimitDoesNotFlattenThePicture) {
  harness::Results results = testing_data::go();
  results.series = {loss_series()};
  results.series[0].limits[0]["value"] = 1e6;
  const Plot plot = plots(Model(results)).at(0);
  EXPECT_THAT(plot.script, Not(HasSubstr("first 1e+06")));
  EXPECT_THAT(plot.table, HasSubstr("1,000,000 nat")) << "it still stands in the table";
}

TEST(Plots, WhatHardlyMovesIsFlat) {
  harness::Results results = testing_data::go();
  results.series = {loss_series()};
  results.series[0].limits = nlohmann::json::array();
  for (auto& point : results.series[0].lines[0]["points"])
    point[1] = 949.182 + 1e-4 * point[0].get<double>();
  EXPECT_THAT(plots(Model(results)).at(0).script,
              AllOf(HasSubstr("set yrange [948.707"), HasSubstr(":949.656")));
}

TEST(Plots, ScalingHasIntervalsAndALineAColumn) {
  harness::Results results = testing_data::go();
  harness::Series series = loss_series();
  series.kind = "scaling";
  series.x = "layers";
  series.unit = "ms";
  series.lines = {{{"name", "forward"}, {"points", {{1, 2, 1.5, 2.5}, {2, 4, 3.5, 4.5}}}},
                  {{"name", "backward"}, {"points", {{1, 3, 2.5, 3.5}, {2, 6, 5.5, 6.5}}}}};
  results.series = {series};
  const Plot plot = plots(Model(results)).at(0);
  EXPECT_THAT(plot.script,
              AllOf(HasSubstr("yerrorbars"), HasSubstr("index 1"), HasSubstr("logscale x")));
  EXPECT_THAT(plot.data, HasSubstr("x\tbackward\tlo\thi\n1\t3\t2.5\t3.5\n"));
  EXPECT_THAT(plot.table, HasSubstr("[5.5, 6.5]"));
}

harness::Series lengths_series() {
  harness::Series series = loss_series();
  series.kind = "scaling";
  series.x = "tokens";
  series.unit = "ms";
  series.limits = json::array();
  series.lines = {{{"name", "NSA"}, {"points", {{1024, 4, 4, 4}, {2048, 8, 8, 8}, {4096, 16}}}},
                  {{"name", "dense"}, {"points", {{1024, 2, 2, 2}, {2048, 8, 8, 8}, {4096, 32}}}}};
  return series;
}

TEST(Plots, TimesAgainstTokensHaveTitledAxesAndTheCrossingPoint) {
  harness::Results results = testing_data::go();
  results.series = {lengths_series()};
  const Plot plot = plots(Model(results)).at(0);
  EXPECT_THAT(plot.script, AllOf(HasSubstr("set xlabel \"tokens\""), HasSubstr("set ylabel \"ms\""),
                                 HasSubstr("logscale y"), HasSubstr("from first 2048, graph 0")));
  EXPECT_THAT(plot.table, HasSubstr("NSA is faster than dense from about 2050 tokens on."));
  EXPECT_THAT(plot.alt, HasSubstr("NSA is faster than dense from about"));
}

TEST(Plots, ACrossingIsWhereTheFirstLineStaysBelow) {
  harness::Results results = testing_data::go();
  results.series = {lengths_series()};
  json& dense = results.series[0].lines[1]["points"];
  const auto table = [&] { return plots(Model(results)).at(0).table; };
  dense = {{1024, 8}, {2048, 16}, {4096, 32}};
  EXPECT_THAT(table(), HasSubstr("NSA is faster than dense at every length that both have."));
  dense = {{1024, 8}, {2048, 16}, {4096, 8}};
  EXPECT_THAT(table(), HasSubstr("NSA is not faster than dense at the longest."));
  dense = {{1024, 8}, {2048, 4}, {4096, 32}};
  EXPECT_THAT(table(), HasSubstr("NSA is faster than dense from about 2900 tokens on."));
  dense = {{512, 8}, {8192, 4}};
  EXPECT_THAT(table(), Not(HasSubstr("faster")));
  results.series[0].x = "layers";
  EXPECT_THAT(table(), Not(HasSubstr("faster")));
}

TEST(Plots, RangesAreBars) {
  harness::Results results = testing_data::go();
  results.tables = {
      {{"id", "hotspots.ranges"},
       {"title", "Time per range"},
       {"phase", "hotspots"},
       {"columns", {"range", "busy, ms", "launches"}},
       {"rows", {{"nsa.sel_attn", 2.5, 12}, {"nsa.win_attn", 7.5, 3}, {"odd", nullptr, 1}}}}};
  const Plot plot = plots(Model(results)).at(0);
  EXPECT_EQ(plot.data, "3.75\t2\t3.75\t0.36\tnsa.win_attn\n1.25\t1\t1.25\t0.36\tnsa.sel_attn\n");
  EXPECT_THAT(plot.script, HasSubstr("set xlabel \"ms\""));
  results.tables[0]["id"] = "hotspots.strange";
  EXPECT_TRUE(plots(Model(results)).empty());
}

TEST(Plots, HostileTextStaysInTheData) {
  const std::string hostile = "`reboot`\"; system(\"x\")\t\n\n\nset output \"/etc/x\" \\ #";
  harness::Results results = testing_data::go();
  results.metrics = {paired(hostile, 1.5)};
  results.metrics[0].details["processes"][0]["process"] = hostile;
  results.series = {loss_series()};
  harness::Series& series = results.series[0];
  series.id = series.title = series.phase = series.x = series.unit = hostile;
  series.lines[0]["name"] = hostile;
  series.limits[0]["criterion"] = series.limits[0]["op"] = hostile;
  results.tables = {{{"id", "a.ranges"},
                     {"title", hostile},
                     {"columns", {"range", hostile + "ms"}},
                     {"rows", {{hostile, 1.0}}}}};
  for (const Plot& plot : plots(Model(results))) {
    EXPECT_THAT(plot.script,
                AllOf(Not(HasSubstr("reboot")), Not(HasSubstr("system")), Not(HasSubstr("etc"))));
    EXPECT_THAT(plot.data, AllOf(Not(HasSubstr("\"")), Not(HasSubstr("\\"))));
    EXPECT_THAT(plot.name, AllOf(Not(HasSubstr("/")), Not(HasSubstr("`")), Not(HasSubstr(" "))));
  }
}

TEST(Plots, WhatIsNoPointIsNotDrawn) {
  harness::Results results = testing_data::go();
  results.series = {loss_series()};
  for (const json& lines :
       {json(3), json::array(), json{{{"points", "x"}}}, json{{{"points", {{1, nullptr}}}}}}) {
    results.series[0].lines = lines;
    EXPECT_TRUE(plots(Model(results)).empty()) << lines;
  }
}

TEST(Plots, NamesStayUniqueAndTheirNumberIsBounded) {
  harness::Results results = testing_data::go();
  results.series.assign(60, loss_series());
  const auto all = plots(Model(results));
  ASSERT_EQ(all.size(), 40U);
  EXPECT_EQ(all[1].name, "S-t.loss-2");
}

TEST(PlotData, NumbersAndLabels) {
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(label("a\tb\nc\"d\\e"), "a b c″d⧵e");
  EXPECT_EQ(label("  "), "–");
  EXPECT_EQ(axis_unit("tok_s"), "tok/s");
  EXPECT_EQ(axis_unit("\"; x"), "");
  EXPECT_EQ(file_name("../a b"), "-.-a-b");
}

}  // namespace
}  // namespace reports
