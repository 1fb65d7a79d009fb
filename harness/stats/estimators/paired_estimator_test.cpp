#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/stats/estimators/estimators.h"

namespace harness {
namespace {

using testing::HasSubstr;

struct ArmPlan {
  std::string series;
  double time;
  double clock_mhz = 0;  // 0: not recorded
};

/// Every arm as planned, each sample a little apart.
EvidenceView bare_view(int processes, const std::vector<ArmPlan>& arms) {
  EvidenceView view;
  view.phase = "ranges_ab";
  view.device = "cuda";
  view.groups_planned = processes;
  for (int p = 0; p < processes; ++p) {
    GroupEvidence g;
    g.id = "g" + std::to_string(p);
    g.file = g.id + ".jsonl";
    g.cases = {{"c", true, ""}};
    for (const ArmPlan& arm : arms)
      for (int s = 0; s < 3; ++s) {
        SampleLine line{"c", arm.series, arm.time * (1 + .001 * ((p + s) % 3)), "ms", s, 0, {}};
        if (arm.clock_mhz > 0) line.clock_mhz = arm.clock_mhz;
        g.samples.push_back(line);
      }
    view.groups.push_back(g);
  }
  return view;
}

/// The same with an A/A of the first arm.
EvidenceView paired_view(int processes, std::vector<ArmPlan> arms) {
  const bool has_repeat = std::ranges::any_of(
      arms, [](const ArmPlan& arm) { return arm.series == "aa" || arm.series.ends_with(".aa"); });
  if (!has_repeat)
    arms.insert(arms.begin() + 1, {arms[0].series + ".aa", arms[0].time, arms[0].clock_mhz});
  return bare_view(processes, arms);
}

MetricSpec spec() {
  MetricSpec s;
  s.name = "v2_vs_v1.speedup_ratio";
  s.unit = "ratio";
  s.estimator = "paired_ratio";
  s.arms = {"v1", "v2"};
  return s;
}

TEST(PairedOverhead, IsThePercentOfTimeMoreThanTheBaseline) {
  MetricSpec overhead = spec();
  overhead.name = "overhead.v2_pct";
  overhead.unit = "pct";
  overhead.estimator = "paired_overhead";
  const EvidenceView view = paired_view(10, {{"v1", 4}, {"v2", 5}});
  const Metric m = estimate(overhead, view), ratio = estimate(spec(), view);
  EXPECT_NEAR(*m.value, 25, .2);
  EXPECT_NEAR(*m.hi, 100 * (1 / *ratio.lo - 1), 1e-6);
  EXPECT_LE(*m.lo, *m.lo95);
  EXPECT_LE(*m.lo95, *m.value);
  EXPECT_LE(*m.value, *m.hi95);
  EXPECT_LE(*m.hi95, *m.hi);
  EXPECT_EQ(m.method, "paired_overhead");
  EXPECT_EQ(m.verdict, "") << "only the ratio has the verdict FASTER or SLOWER";
}

TEST(PairedOverhead, IsWithheldWhenAnOutputMismatches) {
  MetricSpec overhead = spec();
  overhead.estimator = "paired_overhead";
  EvidenceView view = paired_view(10, {{"v1", 4}, {"v2", 5}});
  view.groups[3].checks = {{"c", "oracle/v2", false, "SPEEDUP_WITHHELD", ""}};
  const Metric m = estimate(overhead, view);
  EXPECT_FALSE(m.value);
  EXPECT_NE(m.withheld, "");
}

TEST(PairedRatio, CandidateTwiceAsFast) {
  const Metric m = estimate(spec(), paired_view(10, {{"v1", 4}, {"v2", 2}}));
  EXPECT_EQ(m.id, "M-ranges_ab.v2_vs_v1.speedup_ratio");
  EXPECT_NEAR(*m.value, 2, .01);
  EXPECT_EQ(m.verdict, "FASTER");
  EXPECT_EQ(m.n, 10);
  EXPECT_EQ(m.level, .99);
  EXPECT_LE(*m.lo, *m.lo95);
  EXPECT_LE(*m.lo95, *m.value);
  EXPECT_LE(*m.value, *m.hi95);
  EXPECT_LE(*m.hi95, *m.hi);
  EXPECT_EQ(m.details["processes"].size(), 10u);
  EXPECT_EQ(m.details["noise_floor"]["arm"], "v1");
  EXPECT_EQ(m.details["baseline"]["arm"], "v1");
  EXPECT_EQ(m.samples.size(), 10u);
}

TEST(PairedRatio, DirectionAndEquivalence) {
  const Metric slower = estimate(spec(), paired_view(10, {{"v1", 2}, {"v2", 4}}));
  EXPECT_EQ(slower.verdict, "SLOWER");
  EXPECT_NEAR(*slower.value, .5, .01);
  EXPECT_EQ(estimate(spec(), paired_view(10, {{"v1", 2}, {"v2", 2}})).verdict, "EQUIVALENT");
}

TEST(PairedRatio, FewProcessesAreInconclusiveWithoutBounds) {
  const Metric m = estimate(spec(), paired_view(7, {{"v1", 4}, {"v2", 2}}));
  EXPECT_EQ(m.verdict, "INCONCLUSIVE");
  EXPECT_TRUE(m.value && m.lo95);
  EXPECT_FALSE(m.lo || m.hi);
}

TEST(PairedRatio, AaSeriesGivesTheFloor) {
  const Metric m = estimate(spec(), paired_view(10, {{"v1", 2}, {"v2", 2.06}, {"v1.aa", 2.1}}));
  EXPECT_NEAR(m.details["noise_floor"]["floor_pct"].get<double>(), 5, .2);
  EXPECT_NEAR(m.details["margin_in_force_pct"].get<double>(), 5, .2);
  // 3 % is below what identical arms show here, and above what counts as equal on a GPU.
  EXPECT_EQ(m.verdict, "INCONCLUSIVE");
}

// As in layer_scaling with 0.571 [0.552, 0.616], where the A/A of another arm was ten times as
// noisy.
TEST(PairedRatio, TheFloorIsThatOfThePairsOwnArms) {
  MetricSpec one = spec();
  one.source = "layers1";
  const auto arms = [](double again) {
    return std::vector<ArmPlan>{{"layers1.v1", 2},           {"layers1.v2", 3.5},
                                {"layers1.v2.aa", 3.51},     {"layers1.other", 1},
                                {"layers1.other.aa", again}, {"layers1.aa", again}};
  };
  const Metric metric = estimate(one, bare_view(10, arms(2)));
  EXPECT_EQ(metric.verdict, "SLOWER");
  EXPECT_EQ(metric.details["noise_floor"]["arm"], "v2");
  EXPECT_NEAR(metric.details["noise_floor"]["floor_pct"].get<double>(), .3, .2);

  // The larger floor of both arms: 40 % between equal baselines, 75 % between the arms.
  auto noisy = arms(1);
  noisy.push_back({"layers1.v1.aa", 4});
  const Metric undecided = estimate(one, bare_view(10, noisy));
  EXPECT_EQ(undecided.details["noise_floor"]["arm"], "v1");
  EXPECT_EQ(undecided.verdict, "INCONCLUSIVE");
}

TEST(PairedRatio, WithoutAnAaOfItsOwnArmsThereIsNoVerdict) {
  const Metric none = estimate(spec(), bare_view(10, {{"v1", 4}, {"v2", 2}}));
  EXPECT_EQ(none.verdict, "INCONCLUSIVE");
  EXPECT_TRUE(none.lo && none.details["noise_floor"].is_null());
  // "aa" beside more than two arms does not name the arm that it repeats.
  MetricSpec one = spec();
  one.source = "c/step";
  const std::vector<ArmPlan> two = {{"step.v1", 4}, {"step.v2", 2}, {"step.aa", 4}};
  EXPECT_EQ(estimate(one, bare_view(10, two)).verdict, "FASTER");
  auto three = two;
  three.push_back({"step.v3", 4});
  EXPECT_EQ(estimate(one, bare_view(10, three)).verdict, "INCONCLUSIVE");
}

// A worker that prints the same time for ever, whatever the time is.
TEST(PairedRatio, TimesThatAreAllEqualWereNotMeasured) {
  for (const double time : {1.0, 5e-324, 123.456}) {
    for (const std::string stuck : {"v1", "v2"}) {
      EvidenceView view = paired_view(10, {{"v1", 4}, {"v2", 4}});
      for (GroupEvidence& group : view.groups)
        for (SampleLine& line : group.samples)
          if (line.series == stuck) line.value = time;
      const Metric m = estimate(spec(), view);
      EXPECT_FALSE(m.value || m.lo);
      EXPECT_EQ(m.verdict, "");
      EXPECT_THAT(m.null_reason,
                  HasSubstr("STUCK_METRIC: all 30 samples of series '" + stuck + "'"));
    }
  }
}

// The candidate takes ten times as long and ends after one round of three.
TEST(PairedRatio, ArmsOfDifferentLength) {
  EvidenceView view = paired_view(10, {{"v1", 2}, {"v2", 20}});
  for (GroupEvidence& group : view.groups) {
    for (SampleLine& line : group.samples)
      if (line.round > 0) line.value *= line.series == "v2" ? 1 : 5;
    std::erase_if(group.samples,
                  [](const SampleLine& line) { return line.series == "v2" && line.round > 0; });
  }
  const Metric m = estimate(spec(), view);
  EXPECT_NEAR(*m.value, .1, .001) << "of the round that both have";
  EXPECT_EQ(m.verdict, "SLOWER");
}

TEST(PairedRatio, FailedCheckWithholds) {
  EvidenceView view = paired_view(10, {{"v1", 4}, {"v2", 2}});
  view.groups[4].checks = {{"c", "ranges.equal", false, "ORACLE_MISMATCH", ""}};
  const Metric m = estimate(spec(), view);
  EXPECT_FALSE(m.value || m.lo);
  EXPECT_EQ(m.verdict, "");
  EXPECT_THAT(m.withheld, HasSubstr("not valid, output mismatch: check ranges.equal"));
  EXPECT_THAT(m.withheld, HasSubstr("ORACLE_MISMATCH"));
}

// Survivors would decide: of 13 processes the 3 slow ones run out of memory, and 10 pass.
TEST(PairedRatio, PairsThatAreLeftWhenSomeFailedAreNoFigure) {
  const EvidenceView whole = paired_view(13, {{"v1", 4}, {"v2", 2}});
  ASSERT_TRUE(estimate(spec(), whole).lo);
  EvidenceView failed = whole, crashed = whole, silent = whole, null = whole;
  failed.groups[4].cases[0] = {"c", false, "out of memory"};
  EXPECT_EQ(estimate(spec(), failed).null_reason,
            "case c did not end ok in g4, which voids its samples: out of memory");
  crashed.groups[4].unusable = "NO_DONE";
  EXPECT_EQ(estimate(spec(), crashed).null_reason, "process g4: NO_DONE");
  std::erase_if(silent.groups[4].samples, [](const SampleLine& s) { return s.series == "v2"; });
  EXPECT_EQ(estimate(spec(), silent).null_reason, "process g4 has no sample of series 'v2'");
  null.groups[4].samples.back().null_reason = "not finite: nan";
  EXPECT_EQ(estimate(spec(), null).null_reason,
            "a sample of series 'v2' in process g4 is null: not finite: nan");
}

// A rank that measures nothing is no process of its own.
TEST(PairedRatio, RanksOfOneProcessMeasureTogether) {
  EvidenceView view = paired_view(10, {{"v1", 4}, {"v2", 2}});
  for (GroupEvidence& group : std::vector(view.groups)) {
    view.groups.push_back(group);
    view.groups.back().id += ".r1";
    view.groups.back().samples.clear();
  }
  EXPECT_EQ(estimate(spec(), view).n, 10);
}

// The larger rate is the faster arm: read as times, a slow candidate would be called FASTER.
TEST(PairedRatio, RatesAreNoTimes) {
  EvidenceView view = paired_view(10, {{"v1", 4}, {"v2", 2}});
  for (GroupEvidence& group : view.groups)
    for (SampleLine& line : group.samples) line.unit = "tok_s";
  const Metric m = estimate(spec(), view);
  EXPECT_FALSE(m.value || m.lo);
  EXPECT_THAT(m.null_reason, HasSubstr("arms are measured in 'tok_s'"));
}

TEST(PairedRatio, MissingArmAndImpossibleTimes) {
  EXPECT_THAT(estimate(spec(), paired_view(10, {{"v1", 4}})).null_reason, HasSubstr("'v2'"));
  EXPECT_THAT(estimate(spec(), paired_view(10, {{"v1", 4}, {"v2", 0}})).null_reason,
              HasSubstr("candidate arm in process 'g0': sample 1 is 0"));
  EXPECT_THAT(estimate(spec(), paired_view(10, {{"v1", NAN}, {"v2", 1}})).null_reason,
              HasSubstr("baseline arm in process 'g0': sample 1 is nan"));
}

TEST(PairedRatio, ArmsMayCarryTheSource) {
  MetricSpec s = spec();
  s.source = "c/ranges";
  EXPECT_EQ(estimate(s, paired_view(10, {{"ranges.v1", 4}, {"ranges.v2", 2}})).verdict, "FASTER");
}

TEST(PairedRatio, ReportsHowSamplesWereTaken) {
  EvidenceView view = paired_view(10, {{"v1", 2, 1800}, {"v1.aa", 2, 1800}, {"v2", 4, 1795}});
  MetricSpec one = spec();
  one.source = "v1";
  EXPECT_FALSE(estimate(one, view).details.contains("samples")) << "nothing beside the clock";
  for (GroupEvidence& group : view.groups)
    for (SampleLine& line : group.samples) line.throttle = "none";
  view.groups[3].samples.back().throttle = "sw_power_cap";
  const Metric metric = estimate(one, view);
  const nlohmann::json& rows = metric.details.at("samples");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["arm"], "v1");
  EXPECT_EQ(rows[1]["arm"], "v1 again (A/A)");
  EXPECT_EQ(rows[0]["throttled"], 0);
  EXPECT_EQ(rows[0]["clock_mhz"], 1800);
  EXPECT_DOUBLE_EQ(rows[0]["cycles"], rows[0]["median"].get<double>() * 1800e3) << "of ms";
  EXPECT_TRUE(rows[0]["ran_pct"].is_null());
  EXPECT_EQ(rows[2]["throttled"], 1);
  EXPECT_EQ(rows[2]["throttle_reasons"], nlohmann::json({"sw_power_cap"}));
  EXPECT_EQ(metric.details["cache"], "hot");
  view.groups[3].samples.back().throttle = "";  // one sample does not record it
  EXPECT_TRUE(estimate(one, view).details["samples"][2]["throttled"].is_null());
}

TEST(PairedRatio, OnACpuReportsHowMuchTheThreadRan) {
  EvidenceView view = paired_view(10, {{"v1", 2}, {"v2", 4}});
  view.device = "cpu";
  for (GroupEvidence& group : view.groups)
    for (SampleLine& line : group.samples) line.ran_pct = 75;
  MetricSpec one = spec();
  one.source = "v1";
  const Metric metric = estimate(one, view);
  const nlohmann::json& row = metric.details.at("samples")[0];
  EXPECT_EQ(row["ran_pct"], 75);
  EXPECT_TRUE(row["clock_mhz"].is_null());
  EXPECT_TRUE(row["cycles"].is_null());
  EXPECT_TRUE(row["throttled"].is_null());
}

// The candidate's clock is half: as slow as twice the time, equal in cycles. Neither may decide.
TEST(PairedRatio, ThrottledArmDecidesNothing) {
  const Metric m = estimate(spec(), paired_view(10, {{"v1", 2, 1800}, {"v2", 4, 900}}));
  EXPECT_EQ(m.verdict, "INCONCLUSIVE");
  EXPECT_EQ(m.details["throttled"], "v2");
  EXPECT_LT(*m.lo, .51);
  EXPECT_GT(*m.hi, .99);
  const Metric equal_clocks = estimate(spec(), paired_view(10, {{"v1", 2, 1800}, {"v2", 4, 1795}}));
  EXPECT_EQ(equal_clocks.verdict, "SLOWER");
  EXPECT_FALSE(equal_clocks.details.contains("throttled"));
}

TEST(PairedRatio, SameEvidenceSameBytes) {
  const EvidenceView view = paired_view(12, {{"v1", 4}, {"v2", 2}, {"v1.aa", 4.01}});
  EXPECT_EQ(estimate(spec(), view).details.dump(), estimate(spec(), view).details.dump());
}

}  // namespace
}  // namespace harness
