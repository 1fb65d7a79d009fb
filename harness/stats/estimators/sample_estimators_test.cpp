#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "harness/stats/estimators/estimators.h"
#include "harness/stats/estimators/testing.h"

namespace harness {
namespace {

using testing::HasSubstr;

GroupEvidence process(const std::string& id, const std::string& series,
                      const std::vector<double>& values, const std::string& unit) {
  GroupEvidence g;
  g.id = id;
  g.file = id + ".jsonl";
  g.cases = {{"c", true, ""}};
  for (const double v : values) g.samples.push_back({"c", series, v, unit, 0, 0, {}});
  return g;
}

MetricSpec step_spec(const std::string& estimator, const std::string& unit) {
  MetricSpec s;
  s.name = "step.time_" + unit;
  s.unit = unit;
  s.estimator = estimator;
  s.source = "step";
  return s;
}

std::vector<double> one_to(int n) {
  std::vector<double> values;
  for (int i = 1; i <= n; ++i) values.push_back(i);
  return values;
}

TEST(MedianEstimator, OneProcessUsesSamples) {
  const Metric m =
      estimate(step_spec("median", "ms"), view_of({process("g01", "step", one_to(10), "ms")}));
  EXPECT_EQ(m.value, 5.5);
  EXPECT_EQ(m.n, 10);
  EXPECT_EQ(m.method, "median");
  EXPECT_EQ(m.level, .99);
  EXPECT_EQ(m.lo, 1);
  EXPECT_EQ(m.hi, 10);
  EXPECT_EQ(m.lo95, 2);
  EXPECT_EQ(m.hi95, 9);
  EXPECT_EQ(m.details["unit_of_analysis"], "sample");
}

TEST(MedianEstimator, SeveralProcessesAreTheUnit) {
  std::vector<GroupEvidence> groups;
  for (int i = 1; i <= 9; ++i)
    groups.push_back(process("g0" + std::to_string(i), "step", {i - .5, i + .0, i + .5}, "us"));
  const Metric m = estimate(step_spec("median", "ms"), view_of(groups));
  EXPECT_EQ(m.value, .005);
  EXPECT_EQ(m.n, 9);
  EXPECT_EQ(m.lo, .001);
  EXPECT_EQ(m.hi, .009);
  EXPECT_EQ(m.samples.size(), 9u);
}

TEST(MedianEstimator, FewSamplesHaveNoInterval) {
  const Metric m =
      estimate(step_spec("median", "ms"), view_of({process("g01", "step", {1, 2, 3}, "ms")}));
  EXPECT_EQ(m.value, 2);
  EXPECT_FALSE(m.lo || m.hi || m.lo95 || m.hi95);
}

TEST(MedianEstimator, RefusesMixedCasesUnitsAndVoidSamples) {
  EvidenceView view = view_of({process("g01", "step", one_to(10), "ms")});
  view.groups[0].cases.push_back({"d", true, ""});
  view.groups[0].samples.push_back({"d", "step", 1, "ms", 0, 0, {}});
  EXPECT_THAT(estimate(step_spec("median", "ms"), view).null_reason, HasSubstr("CASE/SERIES"));
  MetricSpec one = step_spec("median", "ms");
  one.source = "c/step";
  EXPECT_EQ(estimate(one, view).value, 5.5);
  EXPECT_THAT(estimate(step_spec("median", "mib"), view_of({process("g01", "step", {1}, "ms")}))
                  .null_reason,
              HasSubstr("samples are in 'ms', the metric in 'mib'"));
  EvidenceView failed = view_of({process("g01", "step", one_to(10), "ms")});
  failed.groups[0].cases[0].ok = false;
  EXPECT_THAT(estimate(step_spec("median", "ms"), failed).null_reason,
              HasSubstr("voids its samples"));
  EXPECT_THAT(estimate(step_spec("median", "ms"), view_of({process("g01", "other", {1}, "ms")}))
                  .null_reason,
              HasSubstr("no samples of series 'step'"));
}

TEST(MedianEstimator, NotFiniteSampleIsNamed) {
  const Metric m =
      estimate(step_spec("median", "ms"), view_of({process("g01", "step", {1, NAN, 3}, "ms")}));
  EXPECT_FALSE(m.value);
  EXPECT_THAT(m.null_reason, HasSubstr("process 'g01': sample 2 is nan"));
}

TEST(RateEstimator, HarmonicMeanAndGuardBand) {
  // Half the steps at 100 tok/s, half at 300: the run as a whole made 150 tok/s.
  std::vector<double> rates;
  for (int i = 0; i < 40; ++i) rates.push_back(i % 2 ? 300 : 100);
  const Metric m =
      estimate(step_spec("rate", "tok_s"), view_of({process("g01", "step", rates, "tok_s")}));
  EXPECT_NEAR(*m.value, 150, 1e-9);
  EXPECT_EQ(m.method, "rate");
  EXPECT_EQ(m.n, 40);
  EXPECT_EQ(m.details["guard_band"], .05);
  EXPECT_LT(*m.lo, 150 / 1.05);
  EXPECT_GT(*m.hi, 150 / .95);
  EXPECT_LE(*m.lo, *m.lo95);
  EXPECT_EQ(m.verdict, "");
}

TEST(RateEstimator, SeveralProcessesGiveTheEnvelope) {
  const std::vector<double> slow(40, 100.0), fast(40, 110.0);
  EvidenceView view =
      view_of({process("g01", "step", slow, "ms"), process("g02", "step", fast, "ms")});
  view.device = "cuda";
  const Metric m = estimate(step_spec("rate", "ms"), view);
  EXPECT_EQ(m.value, 105);
  EXPECT_EQ(m.lo, 98);
  EXPECT_NEAR(*m.hi, 112.2, 1e-9);
  EXPECT_EQ(m.n, 2);
}

/// A process that trained at `rates`, 1,000 tokens a step, of a run that is to take 500 steps.
GroupEvidence training(const std::string& id, const std::vector<double>& rates) {
  GroupEvidence g = process(id, "tok_s", rates, "tok_s");
  g.metrics = {{"c", "step.tokens_count", 1000, "count", ""},
               {"c", "eta.steps_count", 500, "count", ""}};
  return g;
}

MetricSpec eta_spec() {
  MetricSpec s;
  s.name = "eta.long_run_s";
  s.unit = "s";
  s.estimator = "eta";
  s.source = "tok_s";
  return s;
}

TEST(EtaEstimator, TimeOfTheLongRunFromTheBoundsOfTheRate) {
  std::vector<double> rates;
  for (int i = 0; i < 40; ++i) rates.push_back(i % 2 ? 300 : 100);
  const EvidenceView view = view_of({training("g01", rates)});
  const Metric m = estimate(eta_spec(), view);
  EXPECT_NEAR(*m.value, 500 * 1000 / 150.0, 1e-6);
  EXPECT_EQ(m.method, "rate");
  EXPECT_EQ(m.level, .99);
  EXPECT_EQ(m.n, 40);
  EXPECT_EQ(m.details["steps"], 500);
  MetricSpec rate = eta_spec();
  rate.estimator = "rate";
  rate.unit = "tok_s";
  const Metric r = estimate(rate, view);
  EXPECT_NEAR(*m.lo * *r.hi, 5e5, 1e-3);
  EXPECT_NEAR(*m.hi * *r.lo, 5e5, 1e-3);
  EXPECT_NEAR(*m.lo95 * *r.hi95, 5e5, 1e-3);
  EXPECT_LT(*m.lo, *m.value);
  EXPECT_GT(*m.hi, *m.value);
}

TEST(EtaEstimator, ShortRunHasNoBounds) {
  const Metric m = estimate(eta_spec(), view_of({training("g01", {200, 200})}));
  EXPECT_EQ(m.value, 2500);
  EXPECT_FALSE(m.lo || m.hi || m.lo95 || m.hi95);
}

TEST(EtaEstimator, ReportsWhatIsMissing) {
  const std::vector<double> rates(40, 100.0);
  for (const size_t line : {0, 1}) {
    GroupEvidence g = training("g01", rates);
    const std::string name = g.metrics[line].name;
    g.metrics.erase(g.metrics.begin() + static_cast<std::ptrdiff_t>(line));
    const Metric m = estimate(eta_spec(), view_of({g}));
    EXPECT_FALSE(m.value);
    EXPECT_EQ(m.null_reason, "no metric line '" + name + "'");
    g = training("g01", rates);
    g.metrics[line].value = 0;
    EXPECT_EQ(estimate(eta_spec(), view_of({g})).null_reason,
              "metric line '" + name + "' is not above 0");
    GroupEvidence other = training("g02", rates);
    other.metrics[line].value = 7;
    EXPECT_THAT(estimate(eta_spec(), view_of({training("g01", rates), other})).null_reason,
                HasSubstr("differ between cases or processes"));
  }
  EXPECT_EQ(estimate(eta_spec(), view_of({training("g01", {})})).null_reason,
            "no samples of series 'tok_s'");
}

TEST(EtaEstimator, IsWithheldLikeTheRate) {
  GroupEvidence g = training("g01", std::vector<double>(40, 100.0));
  g.checks.push_back({"c", "lr_trace", false, "LR_TRACE", ""});
  const Metric m = estimate(eta_spec(), view_of({g}));
  EXPECT_FALSE(m.value);
  EXPECT_THAT(m.withheld, HasSubstr("lr_trace"));
}

TEST(RateEstimator, ShortRunHasNoInterval) {
  const Metric m =
      estimate(step_spec("rate", "ms"), view_of({process("g01", "step", {5, 5, 5}, "ms")}));
  EXPECT_EQ(m.value, 5);
  EXPECT_FALSE(m.lo || m.hi);
  EXPECT_FALSE(
      estimate(step_spec("rate", "ms"), view_of({process("g01", "step", {5, 0}, "ms")})).value);
}

}  // namespace
}  // namespace harness
