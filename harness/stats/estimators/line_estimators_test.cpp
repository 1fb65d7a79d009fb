#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/stats/estimators/estimators.h"
#include "harness/stats/estimators/testing.h"

namespace harness {
namespace {

using testing::HasSubstr;

GroupEvidence group(const std::string& id) {
  GroupEvidence g;
  g.id = id;
  g.file = "phases/p/" + id + ".jsonl";
  g.cases = {{"c1", true, ""}};
  return g;
}

MetricSpec spec(const std::string& estimator, const std::string& source,
                const std::string& unit = "count") {
  MetricSpec s;
  s.name = "thing.quantity_" + unit;
  s.unit = unit;
  s.estimator = estimator;
  s.source = source;
  return s;
}

EvidenceView with_metrics(std::vector<MetricLine> lines) {
  GroupEvidence g = group("g01");
  g.cases.push_back({"c2", true, ""});
  g.metrics = std::move(lines);
  return view_of({g});
}

TEST(Estimate, UnknownEstimatorIsAnError) {
  EXPECT_THROW(estimate(spec("average", "x"), view_of({})), std::invalid_argument);
}

TEST(Estimate, NoEvidenceIsNeverANumber) {
  for (const auto& [name, function] : estimators()) {
    MetricSpec s = spec(std::string(name), "x");
    s.arms = {"a", "b"};
    for (const EvidenceView& empty : {view_of({}), view_of({group("g01")})}) {
      const Metric m = estimate(s, empty);
      EXPECT_FALSE(m.value || m.lo || m.hi || m.lo95 || m.hi95) << name;
      EXPECT_NE(m.null_reason, "") << name;
      EXPECT_EQ(m.n, 0) << name;
    }
    EvidenceView deferred = view_of({});
    deferred.missing = "DEFERRED: no GPU";
    EXPECT_THAT(estimate(s, deferred).null_reason, HasSubstr("DEFERRED: no GPU")) << name;
  }
}

/// By hand: mean 2, deviation 1, t(0.995; 2) = 9.92484, t(0.975; 2) = 4.30265, over sqrt(3).
TEST(Mean, StudentsIntervalOfTheLines) {
  const Metric m = estimate(
      spec("mean", "gap", "nat"),
      with_metrics(
          {{"c1", "gap", 1, "nat", ""}, {"c1", "gap", 3, "nat", ""}, {"c2", "gap", 2, "nat", ""}}));
  EXPECT_EQ(m.value, 2);
  EXPECT_EQ(m.n, 3);
  EXPECT_EQ(m.method, "mean");
  EXPECT_NEAR(m.lo.value(), 2 - 9.92484 / std::sqrt(3.0), 1e-5);
  EXPECT_NEAR(m.hi.value(), 2 + 9.92484 / std::sqrt(3.0), 1e-5);
  EXPECT_NEAR(m.lo95.value(), 2 - 4.30265 / std::sqrt(3.0), 1e-5);
  EXPECT_NEAR(m.hi95.value(), 2 + 4.30265 / std::sqrt(3.0), 1e-5);
}

TEST(Mean, OneLineHasNoIntervalAndEqualOnesAreRefused) {
  const Metric one = estimate(spec("mean", "gap"), with_metrics({{"c1", "gap", 1, "count", ""}}));
  EXPECT_EQ(one.value, 1);
  EXPECT_FALSE(one.lo || one.hi || one.lo95 || one.hi95);
  const Metric equal =
      estimate(spec("mean", "gap"),
               with_metrics({{"c1", "gap", 1, "count", ""}, {"c2", "gap", 1, "count", ""}}));
  EXPECT_FALSE(equal.value);
  EXPECT_THAT(equal.null_reason, HasSubstr("all 2 metric lines 'gap' are equal"));
}

TEST(Mean, ALineWithoutANumberLeavesNone) {
  const Metric m =
      estimate(spec("mean", "gap"),
               with_metrics({{"c1", "gap", 1, "count", ""}, {"c2", "gap", {}, "count", "lost"}}));
  EXPECT_FALSE(m.value);
  EXPECT_THAT(m.null_reason, HasSubstr("lost"));
}

TEST(Value, ExactlyOneLine) {
  const EvidenceView view = with_metrics({{"c1", "loss", 2.5, "nat", ""}});
  const Metric m = estimate(spec("value", "loss", "nat"), view);
  EXPECT_EQ(m.id, "M-p.thing.quantity_nat");
  EXPECT_EQ(m.value, 2.5);
  EXPECT_EQ(m.method, "exact");
  EXPECT_EQ(m.level, 0);
  EXPECT_EQ(m.samples, std::vector<std::string>{"phases/p/g01.jsonl"});
}

TEST(Value, TwoLinesNullLinesAndWrongUnitsAreNull) {
  const EvidenceView two =
      with_metrics({{"c1", "loss", 2.5, "nat", ""}, {"c2", "loss", 2.5, "nat", ""}});
  EXPECT_THAT(estimate(spec("value", "loss", "nat"), two).null_reason, HasSubstr("2 metric lines"));
  EXPECT_EQ(estimate(spec("value", "c2/loss", "nat"), two).value, 2.5);
  const EvidenceView none = with_metrics({{"c1", "loss", std::nullopt, "nat", "diverged"}});
  EXPECT_THAT(estimate(spec("value", "loss", "nat"), none).null_reason, HasSubstr("diverged"));
  const EvidenceView nan =
      with_metrics({{"c1", "loss", std::numeric_limits<double>::quiet_NaN(), "nat", ""}});
  EXPECT_FALSE(estimate(spec("value", "loss", "nat"), nan).value);
  const EvidenceView unit = with_metrics({{"c1", "loss", 1, "pct", ""}});
  EXPECT_THAT(estimate(spec("value", "loss", "nat"), unit).null_reason, HasSubstr("'pct'"));
}

TEST(Folds, MinAndMax) {
  const EvidenceView view =
      with_metrics({{"c1", "x", 3, "count", ""}, {"c2", "x", 5, "count", ""}});
  EXPECT_EQ(estimate(spec("min", "x"), view).value, 3);
  EXPECT_EQ(estimate(spec("max", "x"), view).value, 5);
  EXPECT_EQ(estimate(spec("max", "x"), view).n, 2);
}

TEST(Folds, AFailedCaseOrMissingProcessMakesThemNull) {
  EvidenceView view = with_metrics({{"c1", "x", 3, "count", ""}});
  view.groups[0].cases[1] = {"c2", false, "threw"};
  for (const char* fold : {"min", "max"})
    EXPECT_THAT(estimate(spec(fold, "x"), view).null_reason, HasSubstr("case c2 failed")) << fold;
  EvidenceView fewer = with_metrics({{"c1", "x", 3, "count", ""}});
  fewer.groups_planned = 2;
  EXPECT_THAT(estimate(spec("max", "x"), fewer).null_reason, HasSubstr("1 of 2 processes"));
  fewer.groups.push_back(group("g02"));
  fewer.groups[1].unusable = "no done line";
  EXPECT_THAT(estimate(spec("max", "x"), fewer).null_reason, HasSubstr("g02: no done line"));
}

TEST(All, OneNoDecidesYesNeedsEverything) {
  const auto lines = [](double second) {
    return with_metrics({{"c1", "same", 1, "bool", ""}, {"c2", "same", second, "bool", ""}});
  };
  EXPECT_EQ(estimate(spec("all", "same", "bool"), lines(1)).value, 1);
  EXPECT_EQ(estimate(spec("all", "same", "bool"), lines(0)).value, 0);
  EvidenceView broken = lines(1);
  broken.groups[0].cases[1].ok = false;
  EXPECT_FALSE(estimate(spec("all", "same", "bool"), broken).value);
}

TEST(Checks, CountByPrefix) {
  GroupEvidence g = group("g01");
  g.checks = {{"c1", "select.ties", true, "", ""},
              {"c1", "select.forced", false, "ORACLE_MISMATCH", ""},
              {"c1", "rope.shift", true, "", ""}};
  const EvidenceView view = view_of({g});
  EXPECT_EQ(estimate(spec("checks_run", "select."), view).value, 2);
  EXPECT_EQ(estimate(spec("checks_failed", "select."), view).value, 1);
  EXPECT_EQ(estimate(spec("checks_failed", "rope"), view).value, 0);
  EXPECT_EQ(estimate(spec("checks_failed", ""), view).value, 1);
  EXPECT_EQ(estimate(spec("checks_run", ""), view).value, 3);
  EXPECT_THAT(estimate(spec("checks_failed", "gate"), view).null_reason, HasSubstr("'gate'"));
  EXPECT_THAT(estimate(spec("checks_run", "gate"), view).null_reason, HasSubstr("'gate'"));
}

TEST(Checks, NoneFailedIsUnknownWhenACaseBrokeOff) {
  GroupEvidence g = group("g01");
  g.checks = {{"c1", "a", true, "", ""}};
  g.cases.push_back({"c2", false, "out of memory"});
  const Metric m = estimate(spec("checks_failed", ""), view_of({g}));
  EXPECT_FALSE(m.value);
  EXPECT_THAT(m.null_reason, HasSubstr("out of memory"));
}

TEST(Withheld, SpeedLinesButNotErrors) {
  EvidenceView view = with_metrics({{"c1", "t", 3, "ms", ""}, {"c1", "err", .5, "ratio", ""}});
  view.groups[0].checks = {{"c1", "values", false, "ORACLE_MISMATCH", ""}};
  const Metric time = estimate(spec("value", "t", "ms"), view);
  EXPECT_FALSE(time.value);
  EXPECT_THAT(time.withheld, HasSubstr("not valid, output mismatch: check values"));
  EXPECT_THAT(time.null_reason, HasSubstr("withheld"));
  EXPECT_EQ(estimate(spec("value", "err", "ratio"), view).value, .5);
}

}  // namespace
}  // namespace harness
