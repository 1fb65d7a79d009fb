#include "harness/evidence/compare_runs.h"

#include <gmock/gmock.h>

#include "harness/evidence/derive/baselines.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Metric measured(double value, double half) {
  Metric metric;
  metric.name = "p.x_ms";
  metric.unit = "ms";
  metric.method = "median";
  metric.value = value;
  metric.lo = value - half;
  metric.hi = value + half;
  return metric;
}

Metric exact(double value) {
  Metric metric;
  metric.name = "p.n_count";
  metric.unit = "count";
  metric.method = "exact";
  metric.value = value;
  return metric;
}

TEST(CompareRuns, MeasuredFiguresDifferOnlyWhereIntervalsDoNotTouch) {
  const Metric a = measured(10, 1), near = measured(11.5, 1), high = measured(13, 1),
               low = measured(7, 1);
  EXPECT_EQ(figure_change(&a, &near), "not told apart");
  EXPECT_EQ(figure_change(&a, &high), "higher");
  EXPECT_EQ(figure_change(&a, &low), "lower");
  Metric bare = measured(20, 1);
  bare.lo.reset();
  EXPECT_EQ(figure_change(&a, &bare), "not told apart")
      << "without an interval no difference is claimed";
}

TEST(CompareRuns, ExactFiguresCompareByValue) {
  const Metric a = exact(3), more = exact(4), less = exact(2);
  EXPECT_EQ(figure_change(&a, &a), "equal");
  EXPECT_EQ(figure_change(&a, &more), "higher");
  EXPECT_EQ(figure_change(&a, &less), "lower");
}

TEST(CompareRuns, WhatIsMissingIsReported) {
  const Metric a = exact(3);
  Metric none = a, unit = a, withheld = a, method = a;
  none.value.reset();
  unit.unit = "ratio";
  withheld.withheld = "output mismatch";
  method.method = "median";
  EXPECT_EQ(figure_change(nullptr, &a), "new");
  EXPECT_EQ(figure_change(&a, nullptr), "gone");
  EXPECT_EQ(figure_change(&a, &none), "no figure");
  EXPECT_EQ(figure_change(&a, &unit), "other unit");
  EXPECT_EQ(figure_change(&a, &withheld), "withheld");
  EXPECT_EQ(figure_change(&a, &method), "other method");
}

TEST(CompareRuns, TablesHoldEveryFigureOfEither) {
  Results a, b;
  a.metrics = {measured(10, 1), exact(3)};
  b.metrics = {measured(20, 1)};
  b.run.seed = 7;
  const auto tables = comparison_tables(a, b);
  ASSERT_EQ(tables.size(), 3U);
  EXPECT_EQ(tables[2]["rows"][0], json({"M-p.n_count", "3", "–", "–", "gone"}));
  EXPECT_EQ(tables[2]["rows"][1],
            json({"M-p.x_ms", "10 ms [9, 11]", "20 ms [19, 21]", "2 [1.727, 2.333]", "higher"}));
  EXPECT_THAT(tables[0].dump(), HasSubstr(R"(["seed","0","7","differs"])"));
}

std::string change(CriterionVerdict before, CriterionVerdict now) {
  Results a, b;
  for (auto [results, verdict] : {std::pair{&a, before}, std::pair{&b, now}}) {
    results->criteria.emplace_back().id = "C-x";
    results->criteria.front().verdict = verdict;
  }
  return comparison_tables(a, b)[1]["rows"][0].back();
}

TEST(CompareRuns, WhatIsNotDecidedIsNoImprovement) {
  using V = CriterionVerdict;
  EXPECT_EQ(change(V::kFail, V::kNotEvaluated), "no longer decided");
  EXPECT_EQ(change(V::kFail, V::kInconclusive), "no longer decided");
  EXPECT_EQ(change(V::kFail, V::kPass), "better");
  EXPECT_EQ(change(V::kInconclusive, V::kPass), "better");
  EXPECT_EQ(change(V::kPass, V::kNotEvaluated), "worse");
  EXPECT_EQ(change(V::kPass, V::kFail), "worse");
  EXPECT_EQ(change(V::kNotEvaluated, V::kFail), "fails now");
  EXPECT_EQ(change(V::kNotEvaluated, V::kInconclusive), "not decided");
  EXPECT_EQ(change(V::kFail, V::kFail), "same");
}

TEST(CompareRuns, ABoundHasAColumnOfItsOwn) {
  Results a;
  a.metrics = {measured(10, 1), exact(3)};
  for (const char* metric : {"p.n_count", "p.x_ms"}) {
    CriterionResult& criterion = a.criteria.emplace_back();
    criterion.id = std::string("C-") + metric;
    criterion.metric = metric;
    criterion.unit = std::string(metric).ends_with("ms") ? "ms" : "count";
    criterion.observed = criterion.unit == "ms" ? 11 : 3;
  }
  const json table = comparison_tables(a, a)[1];
  EXPECT_EQ(table["columns"], json({"criterion", "A", "A observed", "A bound", "B", "B observed",
                                    "B bound", "change"}));
  EXPECT_EQ(table["rows"][0],
            json({"C-p.n_count", "NOT_EVALUATED", "3", "–", "NOT_EVALUATED", "3", "–", "same"}));
  EXPECT_EQ(table["rows"][1], json({"C-p.x_ms", "NOT_EVALUATED", "10 ms [9, 11]", "11 ms",
                                    "NOT_EVALUATED", "10 ms [9, 11]", "11 ms", "same"}));
}

TEST(CompareRuns, OtherHardwareIsNamed) {
  Results a, b;
  a.environment = {{"machine", {{"cpu", {{"model", "one"}}}}}};
  b.environment = {{"machine", {{"cpu", {{"model", "two"}}}}}};
  EXPECT_EQ(hardware_difference(a, a), "");
  EXPECT_EQ(hardware_difference(a, b),
            "A ran on " + hardware_key(a.environment) + ", B on " + hardware_key(b.environment));
  EXPECT_THAT(hardware_difference(a, b), HasSubstr("two"));
}

}  // namespace
}  // namespace harness
