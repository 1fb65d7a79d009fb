// Losses of a trace: divergence, kept-out rows, the CSV file.
#include "nsa/train/record/loss_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "nsa/train/loop/schedule.h"
#include "nsa/train/record/loss_file.h"

namespace nsa::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<StepRecord> trace_of(const std::vector<double>& losses) {
  std::vector<StepRecord> trace;
  for (const double loss : losses) {
    StepRecord r;
    r.step = static_cast<int64_t>(trace.size()) + 1;
    r.rows = 4 * r.step;
    r.loss = loss;
    r.grad_norm = 1 + loss;
    trace.push_back(r);
  }
  return trace;
}

TEST(Divergence, IsALossAboveThatOfAModelThatKnowsNothing) {
  RunFacts facts;  // ln 256 = 5.545
  EXPECT_TRUE(check_divergence(facts, trace_of({5.6, 5.0, 6.5})).ok);
  EXPECT_TRUE(check_divergence(facts, trace_of({2.0, 6.5, 6.5})).ok) << "pretrained weights";
  const Check rose = check_divergence(facts, trace_of({5.6, 30, 40}));
  EXPECT_TRUE(is_divergence(rose));
  EXPECT_THAT(rose.detail, HasSubstr("rose to 40.000000 nat at step 3 and ends at 25.2"));
  std::vector<double> dead(60, 5.5452), recovered(60, 5.0);
  dead[0] = recovered[0] = 5.6;
  dead[3] = recovered[3] = 1e6;
  EXPECT_TRUE(is_divergence(check_divergence(facts, trace_of(dead)))) << "nothing learned since";
  EXPECT_TRUE(check_divergence(facts, trace_of(recovered)).ok) << "a spike";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(is_divergence(check_divergence(facts, trace_of({5.6, nan}))));
}

/// Gates that saturate are a consequence; the cause is the finding.
TEST(Divergence, IsTheOnlyFindingWhereMetricsAreStuck) {
  TrainOptions o;
  o.steps = 3;
  o.warmup = 0;
  o.lr = 0;
  std::vector<StepRecord> trace = trace_of({5.6, 90, 90});
  RunFacts facts;
  facts.has_gates = true;  // no spread: stuck.gate fails
  const Judgement diverged = judge(o, facts, trace);
  ASSERT_EQ(diverged.findings.size(), 1u);
  EXPECT_EQ(diverged.findings[0].code, kDiverged);
  EXPECT_THAT(diverged.findings[0].action, HasSubstr("lower lr"));
  const Judgement stuck = judge(o, facts, trace_of({5.6, 5.5, 5.4}));
  ASSERT_EQ(stuck.findings.size(), 1u);
  EXPECT_EQ(stuck.findings[0].code, "STUCK_METRIC");
}

TEST(ValidationFigures, AreThoseOfTheEvaluationWhereNothingWasTrained) {
  RunFacts facts;
  facts.kept_out = "rows";
  facts.evaluated_loss = 2.5;
  const auto figures = validation_figures(facts, {});
  EXPECT_EQ(figures.at(0).value, 2.5);
  EXPECT_EQ(figures.at(1).value, 2.5);
  facts.evaluated_loss = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(validation_figures(facts, {}).at(0).value);
}

/// The schedule of each step is the one in force when it was done.
TEST(Judge, ARunThatWasExtendedHasTwoSchedules) {
  TrainOptions o;
  o.steps = 30;
  o.warmup = 2;
  std::vector<StepRecord> trace = trace_of(std::vector<double>(30, 5.0));
  for (StepRecord& r : trace) {
    r.schedule_steps = r.step <= 20 ? 20 : 30;
    r.lr = Schedule{o.lr, o.min_lr, o.warmup, r.schedule_steps}.at(r.step - 1);
  }
  const auto lr_ok = [&] {
    for (const Check& check : judge(o, RunFacts(), trace).checks)
      if (check.id == "lr_trace") return check.ok;
    return false;
  };
  EXPECT_TRUE(lr_ok());
  for (StepRecord& r : trace) r.schedule_steps = 0;
  EXPECT_FALSE(lr_ok());
}

TEST(LossFile, HasALineAStepAndBeginsWithTheStepsBefore) {
  const std::string path = ::testing::TempDir() + "/losses.csv";
  std::vector<StepRecord> before = trace_of({5.5});
  LossFile file(path, before);
  StepRecord r = trace_of({5.5, 5.25})[1];
  r.validation_loss = 5.125;
  r.lr = 0.5;
  r.tok_s = 1000;
  file.add(r);
  r.loss = std::numeric_limits<double>::quiet_NaN();
  r.validation_loss.reset();
  file.add(r);
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  EXPECT_THAT(lines,
              ElementsAre("step,loss_nat,validation_loss_nat,learning_rate,gradient_norm,"
                          "tokens_per_second",
                          "1,5.5,,0,6.5,0", "2,5.25,5.125,0.5,6.25,1000", "2,,,0.5,6.25,1000"));
  EXPECT_ANY_THROW(LossFile("/nowhere/losses.csv", {}));
  LossFile().add(r);  // writes nothing
}

}  // namespace
}  // namespace nsa::train
