// The gap of two curves on a recorded run: 40 steps on random tokens, varlen off and on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "base/testing/paths.h"
#include "harness/evidence/storage/run_folder.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/run_alone.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kVarlenRun = base::source_dir() + "/reports/samples/pr31_varlen-h100";

base::protocol::Transcript gap_of(const std::string& of, const std::string& against, int64_t tail) {
  const TempDir dir;
  const json args = {{"of", of}, {"against", against}, {"tail", tail}};
  return run_alone(dir / "raw.jsonl", args, [](BuiltinCall call, auto& emitter) {
    call.run_dir = kVarlenRun;
    run_loss_gap(call, emitter);
  });
}

json value(const base::protocol::Transcript& transcript, const std::string& name) {
  const auto* found =
      find_line<base::protocol::Metric>(transcript, [&](const auto& m) { return m.name == name; });
  return found == nullptr ? json("absent") : found->value;
}

/// The losses that the run's raw lines hold for a phase.
std::map<int64_t, double> recorded(const std::string& phase) {
  std::map<int64_t, double> losses;
  const auto raw = base::protocol::read_transcript(
      RunFolder(kVarlenRun).read("phases/" + phase + "/g01.jsonl"), {"time", {"all"}});
  for (const auto& line : raw.lines)
    if (const auto* beat = std::get_if<base::protocol::Beat>(&line.message);
        beat != nullptr && beat->at == "step")
      losses[beat->step] = beat->extra.at("loss").get<double>();
  return losses;
}

TEST(LossGapPhase, IsTheMeanDifferenceOfTheRecordedLosses) {
  const auto off = recorded("train_random_off"), on = recorded("train_random_on");
  ASSERT_EQ(off.size(), 40u);
  double sum = 0;
  for (int64_t step = 21; step <= 40; ++step) sum += off.at(step) - on.at(step);
  const auto transcript = gap_of("train_random_off", "train_random_on", 20);
  EXPECT_TRUE(transcript.violations.empty());
  EXPECT_EQ(transcript.ended.at("all").status, "ok");
  EXPECT_EQ(value(transcript, "gap.steps_count"), 20);
  EXPECT_NEAR(value(transcript, "gap.mean_nat").get<double>(), sum / 20, 1e-12);
  EXPECT_LE(value(transcript, "gap.band_lo_nat"), value(transcript, "gap.band_hi_nat"));
  std::map<std::string, size_t> beats;
  for (const auto& line : transcript.lines)
    if (const auto* beat = std::get_if<base::protocol::Beat>(&line.message))
      ++beats[beat->extra.at("line").get<std::string>()];
  EXPECT_EQ(beats,
            (std::map<std::string, size_t>{{"train_random_off", 40}, {"train_random_on", 40}}));
}

TEST(LossGapPhase, TheModelThatLearnsLessIsAboveZero) {
  const auto mean = [](const std::string& phase) {
    double sum = 0;
    for (const auto& [step, loss] : recorded(phase))
      if (step > 20) sum += loss;
    return sum / 20;
  };
  std::string worse = "train_random_off", better = "train_random_on";
  ASSERT_NE(mean(worse), mean(better));
  if (mean(worse) < mean(better)) std::swap(worse, better);
  EXPECT_GT(value(gap_of(worse, better, 20), "gap.mean_nat").get<double>(), 0);
  EXPECT_LT(value(gap_of(better, worse, 20), "gap.mean_nat").get<double>(), 0);
}

TEST(LossGapPhase, CurvesThatDoNotEndTogetherGiveNoFigure) {
  const auto transcript = gap_of("train_random_off", "train_text_on", 20);
  EXPECT_EQ(transcript.ended.at("all").status, "failed");
  for (const char* name : {"gap.steps_count", "gap.mean_nat", "gap.band_lo_nat", "gap.band_hi_nat"})
    EXPECT_EQ(value(transcript, name), nullptr) << name;
}

TEST(LossGapPhase, PhasesWithoutACurveAreNamed) {
  const auto error_of = [](const std::string& against) -> std::string {
    try {
      gap_of("train_random_off", against, 20);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(error_of("decode"), HasSubstr("must name two phases of nsa-train, got 'decode'"));
  EXPECT_THAT(error_of("nothing"), HasSubstr("got 'nothing'"));
  EXPECT_THAT(error_of("train_fineweb"), HasSubstr("phase train_fineweb is DEFERRED"));
}

}  // namespace
}  // namespace harness
