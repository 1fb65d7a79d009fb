// Schedule and judgement of traces: what a run needs no tensor for.
#include "nsa/train/record/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <set>

#include <cmath>
#include <fstream>
#include <limits>
#include <numbers>

#include "nsa/train/gradients/communication.h"
#include "nsa/train/loop/schedule.h"

namespace nsa::train {
namespace {

using ::testing::HasSubstr;

/// A healthy run: falling loss, varying gradients and gates, the schedule's learning rates.
std::vector<StepRecord> healthy_trace(const TrainOptions& o) {
  const Schedule schedule{o.lr, o.min_lr, o.warmup, o.steps};
  std::vector<StepRecord> trace;
  for (int64_t k = 0; k < o.steps; ++k) {
    StepRecord r;
    r.step = k + 1;
    r.rows = (k + 1) * o.batch * o.accum;
    r.loss = 5.6 - 0.001 * static_cast<double>(k);
    r.grad_norm = 1 + 0.1 * static_cast<double>(k % 3);
    r.lr = schedule.at(k);
    r.gate = {0.3, 0.3, 0.4, 1.05, 1.04, 1.06, 0.01};
    r.peak_mib = 100;
    trace.push_back(r);
  }
  return trace;
}

RunFacts facts_of(int64_t vocab) {
  RunFacts facts;
  facts.vocab = vocab;
  return facts;
}

const Figure& figure(const Judgement& judgement, const std::string& name) {
  for (const Figure& f : judgement.figures)
    if (f.name == name) return f;
  throw std::out_of_range(name);
}

std::vector<std::string> codes(const Judgement& judgement) {
  std::vector<std::string> result;
  for (const Finding& f : judgement.findings) result.push_back(f.code);
  return result;
}

TEST(Schedule, MatchesHandComputedValues) {
  const Schedule s{.peak = 1.0, .floor = 0.1, .warmup = 4, .steps = 12};
  EXPECT_DOUBLE_EQ(s.at(0), 0.25);
  EXPECT_DOUBLE_EQ(s.at(3), 1.0);
  EXPECT_NEAR(s.at(7), 0.55, 1e-12);  // half of the cosine: the mean of peak and floor
  EXPECT_NEAR(s.at(5), 0.1 + 0.45 * (1 + std::sqrt(0.5)), 1e-12);  // cos(pi/4)
  EXPECT_NEAR(s.at(11), 0.1, 1e-12);
  const Schedule no_warmup{.peak = 1.0, .floor = 0, .warmup = 0, .steps = 1};
  EXPECT_NEAR(no_warmup.at(0), 0, 1e-12);
}

TEST(Judge, MemoryThatGrowsShowsInItsRatio) {
  TrainOptions o;
  o.steps = 40;
  std::vector<StepRecord> trace = healthy_trace(o);
  EXPECT_EQ(figure(judge(o, facts_of(256), trace), "memory.growth_ratio").value, 1);
  for (StepRecord& r : trace) r.peak_mib = 100 + static_cast<double>(r.step);
  EXPECT_NEAR(*figure(judge(o, facts_of(256), trace), "memory.growth_ratio").value, 140.0 / 110,
              1e-12);
  trace.resize(7);
  EXPECT_FALSE(figure(judge(o, facts_of(256), trace), "memory.growth_ratio").value);
}

TEST(Judge, ASlowLoaderIsAFinding) {
  TrainOptions o;
  o.steps = 30;
  RunFacts facts = facts_of(256);
  std::vector<StepRecord> trace = healthy_trace(o);
  for (StepRecord& r : trace) r.step_ms = 100, r.load_ms = 1;
  EXPECT_FALSE(figure(judge(o, facts, trace), "loader.stall_ratio").value);  // nothing was read
  facts.loader = {.warmup_enabled = true, .warmup_batches = 8, .warmup_s = 0.5, .batches = 30};
  EXPECT_THAT(codes(judge(o, facts, trace)), ::testing::IsEmpty());
  EXPECT_EQ(figure(judge(o, facts, trace), "loader.stall_ratio").value, 0.01);
  EXPECT_EQ(figure(judge(o, facts, trace), "loader.warmup_batches_count").value, 8);
  facts.loader.first_batch_ms = 2000;
  const Judgement late = judge(o, facts, trace);
  ASSERT_EQ(codes(late), std::vector<std::string>{"LOADER_STALL"});
  EXPECT_THAT(late.findings[0].symptom, HasSubstr("warm-up on: 8 batches in 0.500 s"));
  EXPECT_EQ(late.findings[0].fact, "loader.stall_ratio");
  facts.loader.first_batch_ms = 0;
  for (StepRecord& r : trace) r.load_ms = 30;
  EXPECT_EQ(codes(judge(o, facts, trace)), std::vector<std::string>{"LOADER_STALL"});
}

TEST(Judge, TheScheduleCountsTheRowsOfAllRanks) {
  TrainOptions o;
  o.steps = 30;
  RunFacts facts = facts_of(256);
  std::vector<StepRecord> trace = healthy_trace(o);
  for (StepRecord& r : trace) r.rows *= 4;
  EXPECT_EQ(codes(judge(o, facts, trace)), std::vector<std::string>{"LR_TRACE"});
  facts.ranks = 4;
  facts.bucket_bytes = {1000};
  EXPECT_THAT(codes(judge(o, facts, trace)), ::testing::IsEmpty());
}

TEST(Judge, BucketsOfAnotherCapAreAFinding) {
  constexpr int64_t kMib = 1 << 20;
  TrainOptions o;
  o.steps = 30;
  o.reducer.bucket_mib = 50;
  RunFacts facts = facts_of(256);
  facts.ranks = 2;
  facts.largest_parameter_bytes = 9 * kMib;
  std::vector<StepRecord> trace = healthy_trace(o);
  for (StepRecord& r : trace) r.rows *= 2;
  const auto codes_with = [&](std::vector<int64_t> mib) {
    facts.bucket_bytes.clear();
    for (const int64_t each : mib) facts.bucket_bytes.push_back(each * kMib);
    return codes(judge(o, facts, trace));
  };
  EXPECT_THAT(codes_with({2, 50, 58, 57, 3}), ::testing::IsEmpty());
  const std::vector<std::string> mismatch = {"BUCKET_MISMATCH"};
  EXPECT_EQ(codes_with({2, 25, 28, 26, 27, 27, 30, 4}), mismatch);  // a cap of 25 in force
  EXPECT_EQ(codes_with({2, 104, 66}), mismatch);                    // a cap of 100
  EXPECT_EQ(codes_with({170}), mismatch);                           // none
  EXPECT_EQ(codes_with({}), mismatch);
  facts.stopped = "stopped";
  EXPECT_THAT(codes_with({}), ::testing::IsEmpty());
}

TEST(Judge, AnotherBackendThanAskedForIsAFinding) {
  TrainOptions o;
  o.steps = 30;
  RunFacts facts = facts_of(256);
  facts.paths = {{"sel_attn", "varlen", "varlen", "plain", "", 60},
                 {"win_attn", "", "plain", "", "", 60}};
  facts.paths.push_back({"sel_attn.backward", "fused", "gather", "", "no backward kernel", 60});
  EXPECT_THAT(codes(judge(o, facts, healthy_trace(o))), ::testing::IsEmpty());
  facts.paths.push_back({"sel_attn", "varlen", "gather", "", "the shape does not fit", 1});
  const Judgement j = judge(o, facts, healthy_trace(o));
  ASSERT_EQ(codes(j), std::vector<std::string>{"PATH_PROOF"});
  EXPECT_THAT(j.findings[0].symptom, HasSubstr("ran gather 1 times (the shape does not fit)"));
  EXPECT_EQ(j.findings[0].fact, "path/sel_attn");
}

TEST(Judge, HealthyRunHasEveryFigureAndNoFinding) {
  TrainOptions o;
  o.steps = 60;
  auto trace = healthy_trace(o);
  trace.back().validation_loss = 2.0;
  const Judgement j = judge(o,
                            {.vocab = 256,
                             .real_data = true,
                             .peak_mib = 12,
                             .paths = {},
                             .step_tokens = 1024,
                             .loader = {.batches = 60},
                             .kept_out = "a corpus",
                             .stopped = ""},
                            trace);
  EXPECT_THAT(codes(j), ::testing::IsEmpty());
  for (const Figure& f : j.figures) EXPECT_TRUE(f.value.has_value()) << f.name;
  EXPECT_EQ(figure(j, "steps.done_count").value, 60);
  EXPECT_EQ(figure(j, "data.real_bool").value, 1);
  EXPECT_EQ(figure(j, "step.tokens_count").value, 1024);
  EXPECT_EQ(figure(j, "eta.steps_count").value, 50000);
  EXPECT_NEAR(*figure(j, "loss.last20_nat").value, 5.6 - 0.001 * 49.5, 1e-12);
  EXPECT_EQ(figure(j, "lr.trace_matches_bool").value, 1);
  EXPECT_EQ(figure(j, "grad.zero_count").value, 0);
  EXPECT_EQ(figure(j, "gate.varies_bool").value, 1);
}

TEST(Judge, ScheduleOffByTheAccumulationFactor) {
  TrainOptions o;
  o.steps = 60, o.accum = 2;
  auto trace = healthy_trace(o);
  EXPECT_THAT(codes(judge(o, {}, trace)), ::testing::IsEmpty());
  const Schedule counted_in_micro_steps{o.lr, o.min_lr, o.warmup, o.steps * o.accum};
  for (auto& r : trace) r.lr = counted_in_micro_steps.at(r.step - 1);
  const Judgement j = judge(o, {}, trace);
  EXPECT_THAT(codes(j), ::testing::ElementsAre("LR_TRACE"));
  EXPECT_EQ(figure(j, "lr.trace_matches_bool").value, 0);
  for (auto& r : trace) r.lr = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(codes(judge(o, {}, trace)), ::testing::ElementsAre("LR_TRACE"));
}

TEST(Judge, RandomTokensAllowNoLossBelowLnV) {
  TrainOptions o;
  o.steps = 30, o.data = "synthetic";
  auto trace = healthy_trace(o);
  EXPECT_THAT(codes(judge(o, facts_of(256), trace)), ::testing::IsEmpty());
  for (auto& r : trace) r.loss -= 0.12;  // the last twenty: mean 5.46, ln 256 - 0.05 = 5.495
  EXPECT_THAT(codes(judge(o, facts_of(256), trace)), ::testing::ElementsAre("LOSS_TOO_GOOD"));
  o.data = "local_text";  // real text may
  EXPECT_THAT(codes(judge(o, facts_of(256), trace)), ::testing::IsEmpty());
}

TEST(Judge, StuckMetricsAreNamed) {
  TrainOptions o;
  o.steps = 30;
  auto trace = healthy_trace(o);
  for (auto& r : trace) r.grad_norm = 0, r.gate.layer_spread_min = 0;
  const Judgement j = judge(o, {}, trace);
  EXPECT_THAT(codes(j), ::testing::ElementsAre("STUCK_METRIC", "STUCK_METRIC"));
  EXPECT_EQ(figure(j, "grad.zero_count").value, 30);
  EXPECT_EQ(figure(j, "grad.norm_varies_bool").value, 0);
  EXPECT_EQ(figure(j, "gate.varies_bool").value, 0);
}

TEST(Judge, ShortRunsGiveReasonsInsteadOfFigures) {
  TrainOptions o;
  o.steps = 7;
  RunFacts facts;
  facts.stopped = "stopped at step 8: SIGTERM";
  const Judgement j = judge(o, facts, healthy_trace(o));
  EXPECT_FALSE(figure(j, "loss.last20_nat").value.has_value());
  EXPECT_THAT(figure(j, "loss.last20_nat").reason,
              HasSubstr("needs 20 steps, 7 done: stopped at step 8: SIGTERM"));
  const Judgement none = judge(o, {}, {});
  // What the run was asked for is known without a step; everything else needs one.
  const std::set<std::string> known = {"steps.done_count", "steps.missing_count", "data.real_bool",
                                       "eta.steps_count"};
  for (const Figure& f : none.figures)
    EXPECT_EQ(f.value.has_value(), known.contains(f.name)) << f.name;
}

TEST(Judge, StepsThatWereNotDoneAreCounted) {
  TrainOptions o;
  o.steps = 7;
  auto trace = healthy_trace(o);
  EXPECT_EQ(figure(judge(o, {}, trace), "steps.missing_count").value, 0);
  trace.pop_back();
  EXPECT_EQ(figure(judge(o, {}, trace), "steps.missing_count").value, 1);
}

TEST(Judge, TheLossOfKeptOutRowsIsTheLastAndTheSmallest) {
  TrainOptions o;
  o.steps = 30;
  auto trace = healthy_trace(o);
  RunFacts facts;
  EXPECT_THAT(figure(judge(o, facts, trace), "loss.validation_nat").reason,
              HasSubstr("validate_every is 0"));
  facts.kept_out = "a corpus";
  EXPECT_THAT(figure(judge(o, facts, trace), "loss.validation_min_nat").reason,
              HasSubstr("no step had its loss of kept-out rows measured"));
  trace[3].validation_loss = 2.5;
  trace[9].validation_loss = 3.5;
  EXPECT_EQ(figure(judge(o, facts, trace), "loss.validation_nat").value, 3.5);
  EXPECT_EQ(figure(judge(o, facts, trace), "loss.validation_min_nat").value, 2.5);
  trace[12].validation_loss = std::numeric_limits<double>::quiet_NaN();
  for (const char* name : {"loss.validation_nat", "loss.validation_min_nat"}) {
    EXPECT_FALSE(figure(judge(o, facts, trace), name).value.has_value()) << name;
    EXPECT_THAT(figure(judge(o, facts, trace), name).reason, HasSubstr("not finite at step 13"));
  }
}

/// A step without targets as the trainer records it.
StepRecord idle(StepRecord r) {
  r.targets = 0;
  r.loss = std::numeric_limits<double>::quiet_NaN();
  r.grad_norm = 0;
  return r;
}

TEST(Judge, StepsWithoutTargetsAreLeftOutOfLossAndGradient) {
  TrainOptions o;
  o.steps = 60, o.data = "synthetic";
  const auto whole = healthy_trace(o);
  for (const std::set<size_t>& places : {std::set<size_t>{0}, {59}, {0, 1, 30, 58, 59}, {45, 50}}) {
    auto trace = whole;
    double sum = 0, first = 0;
    int64_t counted = 0;
    for (size_t i = trace.size(); i-- > 0;) {
      if (places.contains(i)) {
        trace[i] = idle(trace[i]);
        continue;
      }
      first = trace[i].loss;
      if (counted++ < 20) sum += trace[i].loss;
    }
    const Judgement j = judge(o, facts_of(256), trace);
    EXPECT_THAT(codes(j), ::testing::IsEmpty());
    EXPECT_EQ(figure(j, "loss.first_nat").value, first);
    EXPECT_NEAR(*figure(j, "loss.last20_nat").value, sum / 20, 1e-12);
    EXPECT_NEAR(*figure(j, "loss.min_nat").value,
                5.6 - 0.001 * (places.contains(58)   ? 57
                               : places.contains(59) ? 58
                                                     : 59),
                1e-12);
    EXPECT_EQ(figure(j, "grad.zero_count").value, 0);
    EXPECT_EQ(figure(j, "grad.norm_varies_bool").value, 1);
    EXPECT_EQ(figure(j, "steps.done_count").value, 60);
  }
}

TEST(Judge, TheMeanLossOfUnlikeStepsIsOverTheirTargets) {
  TrainOptions o;
  o.steps = 22;
  auto trace = healthy_trace(o);
  double sum = 0, targets = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    trace[i].targets = 1 + static_cast<int64_t>(i * i);
    if (i < 2) continue;
    sum += static_cast<double>(trace[i].targets) * trace[i].loss;
    targets += static_cast<double>(trace[i].targets);
  }
  EXPECT_NEAR(*figure(judge(o, {}, trace), "loss.last20_nat").value, sum / targets, 1e-12);
  const auto figure_with = [&](int64_t each) {
    for (StepRecord& r : trace) r.targets = each;
    return *figure(judge(o, {}, trace), "loss.last20_nat").value;
  };
  EXPECT_EQ(figure_with(4096), figure_with(-1)) << "equal numbers weigh alike, known or not";
}

TEST(Judge, ARunWithoutAnyTargetHasNoLoss) {
  TrainOptions o;
  o.steps = 30;
  auto trace = healthy_trace(o);
  for (StepRecord& r : trace) r = idle(r);
  const Judgement j = judge(o, {}, trace);
  EXPECT_THAT(codes(j), ::testing::IsEmpty());
  for (const char* name :
       {"loss.first_nat", "loss.min_nat", "loss.last20_nat", "grad.zero_count"}) {
    EXPECT_FALSE(figure(j, name).value.has_value()) << name;
    EXPECT_THAT(figure(j, name).reason, HasSubstr("0 done: 30 more had no target"));
  }
}

TEST(Judge, ALossThatIsNoNumberInAStepWithTargetsIsNotLeftOut) {
  TrainOptions o;
  o.steps = 30, o.data = "synthetic";
  auto trace = healthy_trace(o);
  trace.back().loss = std::numeric_limits<double>::quiet_NaN();
  trace.back().targets = 5;
  EXPECT_THAT(codes(judge(o, {}, trace)), ::testing::Contains("LOSS_TOO_GOOD"));
}

TEST(Judge, GatesOfEqualTokensAreNotCompared) {
  const double none = std::numeric_limits<double>::infinity();
  TrainOptions o;
  o.steps = 30;
  auto trace = healthy_trace(o);
  trace[3].gate.layer_spread_min = none;
  EXPECT_THAT(codes(judge(o, {}, trace)), ::testing::IsEmpty());
  EXPECT_EQ(figure(judge(o, {}, trace), "gate.varies_bool").value, 1);
  trace[4].gate.layer_spread_min = 0;
  EXPECT_THAT(codes(judge(o, {}, trace)), ::testing::ElementsAre("STUCK_METRIC"));
  for (StepRecord& r : trace) r.gate.layer_spread_min = none;
  EXPECT_THAT(codes(judge(o, {}, trace)), ::testing::IsEmpty());
  EXPECT_FALSE(figure(judge(o, {}, trace), "gate.varies_bool").value.has_value());
  EXPECT_THAT(figure(judge(o, {}, trace), "gate.varies_bool").reason,
              HasSubstr("no step had two different input tokens"));
}

TEST(Communication, ByHand) {
  EXPECT_EQ(communication_of({}).busy_ms, 0);
  EXPECT_EQ(communication_of({}).overlapped_pct(), 0);
  // Hidden 0..4; then 5..9 of which the last gradient comes at 8; its own sum waits until 9.
  const Communication c = communication_of({{0, 4}, {5, 9}, {8, 12}});
  EXPECT_DOUBLE_EQ(c.busy_ms, 4 + 4 + 3);
  EXPECT_DOUBLE_EQ(c.exposed_ms, 1 + 3);
  EXPECT_DOUBLE_EQ(c.overlapped_pct(), 100 * (1 - 4.0 / 11));
  const Communication alone = communication_of({{2, 7}});
  EXPECT_DOUBLE_EQ(alone.exposed_ms, 5) << "one bucket hides nothing";
}

}  // namespace
}  // namespace nsa::train
