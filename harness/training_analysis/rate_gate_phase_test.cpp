#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/training_analysis/rate_gate.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(RateGate, OnlyTwoPassesProceed) {
  using enum CriterionVerdict;
  EXPECT_EQ(gate_word(decide_gate(kPass, kPass)), "PROCEED");
  EXPECT_EQ(gate_word(decide_gate(kFail, kPass)), "STOP");
  EXPECT_EQ(gate_word(decide_gate(kFail, kInconclusive)), "STOP");
  for (const auto proceed : {kPass, kFail, kInconclusive, kNotEvaluated})
    EXPECT_EQ(gate_word(decide_gate(proceed, kFail)), "ABORT");
  EXPECT_EQ(gate_word(decide_gate(kInconclusive, kPass)), "UNDECIDED");
  EXPECT_EQ(gate_word(decide_gate(kNotEvaluated, kNotEvaluated)), "UNDECIDED");
  EXPECT_EQ(gate_word(decide_gate(kPass, kNotEvaluated)), "UNDECIDED");
}

class RateGatePhase : public testing::Test {
 protected:
  /// A rate of about 400 tok/s before criteria of at least `proceed` and of at least `abort`.
  base::protocol::Transcript gate(double proceed, double abort, int64_t steps = 40) {
    write_training_run(run_.path(), {.steps = steps, .gate_tok_s = proceed});
    const auto file = run_.path() / "runbook.json";
    json book = json::parse(read_bytes(file));
    json& criteria = book["phases"][0]["criteria"];
    json other = criteria.back();
    other.update({{"id", "C-ABORT"}, {"value", abort}});
    criteria.push_back(other);
    write_bytes(file, book.dump(2) + "\n");
    return look_back(run_.path(), {{"proceed", "C-GATE"}, {"abort", "C-ABORT"}}, run_rate_gate);
  }
  static const base::protocol::Finding* finding_of(const base::protocol::Transcript& transcript) {
    return find_line<base::protocol::Finding>(transcript, [](const auto&) { return true; });
  }

  TempDir run_;
};

TEST_F(RateGatePhase, AFastRunProceedsAndFindsNothing) {
  const auto transcript = gate(300, 100);
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_EQ(metric_of(transcript, "decision.proceed_bool"), true);
  EXPECT_EQ(metric_of(transcript, "decision.abort_bool"), false);
  EXPECT_EQ(rows_of(transcript, "decision")[0][0], "PROCEED");
  EXPECT_EQ(finding_of(transcript), nullptr);
}

TEST_F(RateGatePhase, ASlowOneStopsAndAHopelessOneAborts) {
  for (const auto& [proceed, abort, word, fact] :
       {std::tuple(500, 100, "STOP", "C-GATE"), std::tuple(900, 800, "ABORT", "C-ABORT")}) {
    const auto transcript = gate(proceed, abort);
    EXPECT_EQ(metric_of(transcript, "decision.proceed_bool"), false) << word;
    EXPECT_EQ(rows_of(transcript, "decision")[0][0], word);
    ASSERT_NE(finding_of(transcript), nullptr) << word;
    EXPECT_EQ(finding_of(transcript)->code, "RATE_GATE");
    EXPECT_EQ(finding_of(transcript)->fact, fact);
  }
}

TEST_F(RateGatePhase, TooFewStepsDecideNothing) {
  const auto transcript = gate(300, 100, 5);
  EXPECT_EQ(rows_of(transcript, "decision")[0][0], "UNDECIDED");
  EXPECT_TRUE(metric_of(transcript, "decision.proceed_bool").is_null());
  EXPECT_NE(finding_of(transcript), nullptr);
}

TEST_F(RateGatePhase, TwoCriteriaOnOneFigureMustBeNamed) {
  write_training_run(run_.path(), {.gate_tok_s = 300});
  const auto transcript =
      look_back(run_.path(), {{"proceed", "C-GATE"}, {"abort", "C-NONE"}}, run_rate_gate);
  EXPECT_THAT(end_of(transcript), HasSubstr("got 'C-GATE' and 'C-NONE'"));
}

}  // namespace
}  // namespace harness
