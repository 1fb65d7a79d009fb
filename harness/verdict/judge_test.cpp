#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/verdict/verdict.h"

namespace harness {
namespace {

using testing::HasSubstr;
using enum CriterionVerdict;

const double kNaN = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

CriterionSpec spec(const std::string& op, nlohmann::json value, const std::string& unit = "ratio") {
  CriterionSpec s;
  s.id = "C-x";
  s.metric = "p.x_" + unit;
  s.op = op;
  s.value = std::move(value);
  s.unit = unit;
  return s;
}

Metric exact(double value, const std::string& unit = "ratio") {
  Metric m;
  m.name = "p.x_" + unit;
  m.unit = unit;
  m.value = value;
  m.method = "exact";
  return m;
}

Metric measured(double lo, double value, double hi) {
  Metric m = exact(value);
  m.method = "paired_ratio";
  m.level = .99;
  m.lo = lo;
  m.hi = hi;
  m.n = 10;
  return m;
}

CriterionResult run(const CriterionSpec& s, const Metric& m) { return judge(s, "p", &m, {}); }

TEST(Judge, ExactComparesTheValue) {
  struct Row {
    std::string op;
    double value, threshold;
    CriterionVerdict verdict;
    double margin;
  };
  for (const Row& row :
       {Row{">=", 2, 2, kPass, 0}, Row{">=", 1, 2, kFail, -1}, Row{">", 2, 2, kFail, 0},
        Row{">", 3, 2, kPass, 1}, Row{"<=", 2, 2, kPass, 0}, Row{"<=", 3, 2, kFail, -1},
        Row{"<", 2, 2, kFail, 0}, Row{"<", 1, 2, kPass, 1}, Row{"==", 2, 2, kPass, 0},
        Row{"==", 1, 2, kFail, -1}}) {
    const CriterionResult r = run(spec(row.op, row.threshold), exact(row.value));
    EXPECT_EQ(r.verdict, row.verdict) << row.value << row.op << row.threshold;
    EXPECT_EQ(r.observed, row.value);
    EXPECT_EQ(r.margin, row.margin);
    EXPECT_EQ(r.threshold_source, "runbook");
  }
}

TEST(Judge, MeasuredComparesTheBound) {
  struct Row {
    std::string op;
    double lo, hi, threshold;
    CriterionVerdict verdict;
    double observed;
  };
  for (const Row& row :
       {Row{">=", 1.6, 1.8, 1.5, kPass, 1.6}, Row{">=", 1.4, 1.8, 1.5, kInconclusive, 1.4},
        Row{">=", 1.2, 1.4, 1.5, kFail, 1.2}, Row{">=", 1.5, 1.8, 1.5, kPass, 1.5},
        Row{">", 1.5, 1.8, 1.5, kInconclusive, 1.5}, Row{">", 1.2, 1.5, 1.5, kFail, 1.2},
        Row{"<=", 1.2, 1.4, 1.5, kPass, 1.4}, Row{"<=", 1.4, 1.6, 1.5, kInconclusive, 1.6},
        Row{"<=", 1.6, 1.8, 1.5, kFail, 1.8}, Row{"<", 1.2, 1.5, 1.5, kInconclusive, 1.5},
        Row{"<", 1.5, 1.8, 1.5, kFail, 1.8}}) {
    const Metric m = measured(row.lo, (row.lo + row.hi) / 2, row.hi);
    const CriterionResult r = run(spec(row.op, row.threshold), m);
    EXPECT_EQ(r.verdict, row.verdict) << row.op << row.lo << " " << row.hi;
    EXPECT_EQ(r.observed, row.observed);
    EXPECT_EQ(*r.margin > 0 || r.verdict == kPass, r.verdict == kPass);
  }
}

TEST(Judge, ReasonsTellBothNumbers) {
  EXPECT_EQ(run(spec(">=", 1.5), measured(1.6, 1.7, 1.8)).reason, "lower bound 1.6 >= 1.5");
  EXPECT_EQ(run(spec(">=", 1.5), measured(1.2, 1.3, 1.4)).reason,
            "even the upper bound 1.4 misses >= 1.5");
  EXPECT_EQ(run(spec(">=", 1.5), measured(1.4, 1.6, 1.8)).reason,
            "the interval holds the threshold: lower bound 1.4, must be >= 1.5");
  // rounding must not hide the difference that decided
  EXPECT_EQ(run(spec(">=", .99999), exact(.99998)).reason, "value 0.99998, must be >= 0.99999");
}

TEST(Judge, BoolThresholds) {
  EXPECT_EQ(run(spec("==", true, "bool"), exact(1, "bool")).verdict, kPass);
  EXPECT_EQ(run(spec("==", true, "bool"), exact(0, "bool")).verdict, kFail);
  EXPECT_EQ(run(spec("==", false, "bool"), exact(0, "bool")).verdict, kPass);
}

void expect_not_evaluated(const CriterionResult& r, const std::string& reason) {
  EXPECT_EQ(r.verdict, kNotEvaluated) << reason;
  EXPECT_THAT(r.reason, HasSubstr(reason));
  EXPECT_FALSE(r.observed || r.margin) << reason;
}

TEST(Judge, WithoutAFigureNothingIsEvaluated) {
  expect_not_evaluated(judge(spec(">=", 1), "p", nullptr, {}), "no phase produced the metric p.x");
  Metric null = exact(0);
  null.value.reset();
  null.null_reason = "no samples";
  expect_not_evaluated(run(spec(">=", 0), null), "no samples");
  Metric withheld = measured(1, 2, 3);
  withheld.withheld = "not valid, output mismatch";
  expect_not_evaluated(run(spec(">=", 0), withheld), "withheld: not valid, output mismatch");
  expect_not_evaluated(run(spec(">=", 0, "ms"), exact(1)), "in 'ratio', the criterion in 'ms'");
  expect_not_evaluated(run(spec("==", 2), measured(2, 2, 2)), "== is for exact figures");
  expect_not_evaluated(run(spec("!=", 2), exact(1)), "one of >= > <= < ==");
  expect_not_evaluated(run(spec(">=", "fast"), exact(1)), "the threshold must be a number");
}

TEST(Judge, NaNAndInfinityPassNothing) {
  for (const double bad : {kNaN, kInf, -kInf}) {
    for (const char* op : {">=", ">", "<=", "<"}) {
      EXPECT_EQ(run(spec(op, 1), exact(bad)).verdict, kNotEvaluated) << op << bad;
      EXPECT_EQ(run(spec(op, bad), exact(1)).verdict, kNotEvaluated) << op << bad;
      EXPECT_EQ(run(spec(op, 1), measured(bad, 1, 2)).verdict, kNotEvaluated) << op << bad;
      EXPECT_EQ(run(spec(op, 1), measured(0, 1, bad)).verdict, kNotEvaluated) << op << bad;
      EXPECT_EQ(run(spec(op, 1), measured(0, bad, 2)).verdict, kNotEvaluated) << op << bad;
    }
    EXPECT_EQ(run(spec("==", bad), exact(bad)).verdict, kNotEvaluated);
  }
  EXPECT_EQ(run(spec(">=", 1), measured(3, 2, 1)).verdict, kNotEvaluated);  // bounds out of order
}

TEST(Judge, MeasuredWithoutIntervalIsInconclusive) {
  Metric m = measured(1, 2, 3);
  m.lo = m.hi = std::nullopt;
  m.n = 5;
  const CriterionResult r = run(spec(">=", 1), m);
  EXPECT_EQ(r.verdict, kInconclusive);
  EXPECT_THAT(r.reason, HasSubstr("no 99 % interval at n = 5"));
}

TEST(Judge, BaselineTimesFactor) {
  const CriterionSpec s = spec(">=", {{"baseline", "b.x"}, {"factor", .5}});
  const Baselines baselines{"configs/baselines/r/h200.json", "", {{"b.x", 4}}};
  const Metric m = exact(3);
  const CriterionResult r = judge(s, "p", &m, baselines);
  EXPECT_EQ(r.verdict, kPass);
  EXPECT_EQ(r.threshold, 2);
  EXPECT_EQ(r.threshold_source, "baseline configs/baselines/r/h200.json: b.x x 0.5");
  const Metric below = exact(1.99);
  EXPECT_EQ(judge(s, "p", &below, baselines).verdict, kFail);
  const Metric above = exact(2.01);
  EXPECT_EQ(judge(spec("<=", s.value), "p", &above, baselines).verdict, kFail);
}

TEST(Judge, UnusableBaselinesPassNothing) {
  const CriterionSpec s = spec(">=", {{"baseline", "b.x"}, {"factor", 1}});
  const Metric m = exact(100);
  expect_not_evaluated(judge(s, "p", &m, {}), "BASELINE_INVALID: no baseline of 'b.x'");
  for (const double bad : {0.0, -1.0, kNaN, kInf})
    expect_not_evaluated(judge(s, "p", &m, {"f", "", {{"b.x", bad}}}), "it must be positive");
  expect_not_evaluated(
      judge(s, "p", &m, {"f", "BASELINE_INVALID: it is of another card", {{"b.x", 4}}}),
      "BASELINE_INVALID: it is of another card");
  Baselines other{"f", "", {{"b.x", 4}}};
  other.units["b.x"] = "furlong";
  expect_not_evaluated(judge(s, "p", &m, other), "BASELINE_INVALID: the baseline of 'b.x' is in");
  other.units.clear();
  other.levels["b.x"] = 0.95;
  expect_not_evaluated(judge(s, "p", &m, other), "BASELINE_INVALID: the baseline's interval");
  EXPECT_FALSE(judge(s, "p", &m, {}).threshold);
}

TEST(UnmetCriteria, OnlyPassOpensAPhase) {
  std::vector<CriterionResult> criteria(2);
  criteria[0].id = "C-a";
  criteria[1].id = "C-b";
  criteria[0].verdict = criteria[1].verdict = kPass;
  const std::vector<std::string> both = {"C-a", "C-b"}, absent = {"C-c"};
  EXPECT_EQ(unmet_criteria(both, criteria), "");
  EXPECT_EQ(unmet_criteria({}, {}), "");
  EXPECT_EQ(unmet_criteria(absent, criteria), "needs C-c, which this run does not have");
  for (const auto verdict : {kFail, kInconclusive, kNotEvaluated}) {
    criteria[1].verdict = verdict;
    criteria[1].reason = "16 misses >= 500";
    EXPECT_THAT(unmet_criteria(both, criteria), HasSubstr(": 16 misses >= 500"));
  }
}

TEST(Judge, FindsTheMetricByName) {
  const std::vector<Metric> metrics = {exact(1, "count"), exact(5)};
  EXPECT_EQ(judge(spec(">=", 5), "p", metrics, {}).verdict, kPass);
  EXPECT_EQ(judge(spec(">=", 5, "ms"), "p", metrics, {}).verdict, kNotEvaluated);
}

TEST(Judge, AFailureCountsOnlyWhenASecondMeasurementAgrees) {
  const CriterionSpec s = spec(">=", 0.95);
  const CriterionResult fail = run(s, measured(0.7, 0.8, 0.9)), pass = run(s, measured(1, 1, 1)),
                        open = run(s, measured(0.9, 1, 1.1)), none = run(s, exact(kNaN));
  ASSERT_EQ(fail.verdict, kFail);
  EXPECT_EQ(confirmed(fail, &fail).verdict, kFail);
  EXPECT_THAT(confirmed(fail, &fail).reason, HasSubstr("confirmed by a second measurement"));
  EXPECT_EQ(confirmed(fail, &pass).verdict, kInconclusive);
  EXPECT_EQ(confirmed(fail, &open).verdict, kInconclusive);
  EXPECT_EQ(confirmed(fail, &none).verdict, kInconclusive);
  EXPECT_EQ(confirmed(fail, nullptr).verdict, kInconclusive);
  for (const CriterionResult& other : {pass, open, none})
    EXPECT_EQ(confirmed(other, &fail).verdict, other.verdict);
}

}  // namespace
}  // namespace harness
