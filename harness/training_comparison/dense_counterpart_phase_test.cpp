// Training beside a twin, on a recorded run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/evidence/storage/temp_dir.h"
#include "harness/phases/builtin_phases.h"
#include "harness/phases/run_alone.h"
#include "harness/schema/error.h"
#include "harness/training_analysis/training_run.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using List = std::vector<std::string>;

constexpr const char* kRun = NSA_SOURCE_DIR "/reports/samples/core_fixes-h200";

protocol::Transcript twins_of(const List& of, const List& against) {
  const TempDir dir;
  const json args = {{"of", of}, {"against", against}};
  return run_alone(dir / "raw.jsonl", args, [](BuiltinCall call, auto& emitter) {
    call.run_dir = kRun;
    run_twins(call, emitter);
  });
}

std::string error_of(const List& of, const List& against) {
  try {
    twins_of(of, against);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(TwinsPhase, FiguresAreThoseOfTheRecordedRun) {
  const auto said = twins_of({"tput_s2048_b1", "tput_s512_b2"}, {"memory_b1", "tput_s512_b2"});
  EXPECT_TRUE(said.violations.empty());
  EXPECT_EQ(end_of(said), "ok");
  const json rows = rows_of(said, "twins");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], (json{"tput_s2048_b1", "memory_b1", 2048, 1, 4385, 4436, 0.989, 2416, 2416}));
  EXPECT_EQ(rows[1][6], 1);
  EXPECT_EQ(metric_of(said, "pairs.compared_count"), 2);
  EXPECT_NEAR(metric_of(said, "memory.per_token_growth_ratio").get<double>(),
              2416.35009766 / 2048 / (1979.97802734 / 1024), 1e-9);
}

TEST(TwinsPhase, OneLengthShowsNoGrowth) {
  const auto said = twins_of({"memory_b1"}, {"memory_b1"});
  EXPECT_EQ(metric_of(said, "pairs.compared_count"), 1);
  EXPECT_EQ(metric_of(said, "memory.per_token_growth_ratio"), nullptr);
}

/// A phase that was cut off before its first step has empty cells, and is not compared.
TEST(TwinsPhase, APhaseWithoutFiguresIsShownAndNotCompared) {
  const TempDir dir;
  const auto copy = dir / "run";
  std::filesystem::copy(kRun, copy, std::filesystem::copy_options::recursive);
  write_bytes(copy / "phases/memory_b1/phase.json",
              R"({"phase": "memory_b1", "status": "FAILED", "cause": "OOM", "reason": "r"})");
  std::filesystem::remove(copy / "phases/memory_b1/g01.jsonl");
  const json args = {{"of", {"tput_s2048_b1"}}, {"against", {"memory_b1"}}};
  const auto said = run_alone(dir / "raw.jsonl", args, [&](BuiltinCall call, auto& emitter) {
    call.run_dir = copy;
    run_twins(call, emitter);
  });
  EXPECT_EQ(end_of(said), "ok");
  EXPECT_EQ(metric_of(said, "pairs.compared_count"), 0);
  const json row = rows_of(said, "twins")[0];
  EXPECT_EQ(row[5], nullptr);
  EXPECT_EQ(row[6], nullptr);
  EXPECT_EQ(row[4], 4385);
}

TEST(TwinsPhase, WhatCannotBeComparedIsNamed) {
  EXPECT_THAT(error_of({}, {}), HasSubstr("at least one, got 0 and 0"));
  EXPECT_THAT(error_of({"memory_b1"}, {}), HasSubstr("got 1 and 0"));
  EXPECT_THAT(error_of({"oracle"}, {"memory_b1"}), HasSubstr("got 'oracle'"));
  EXPECT_THAT(error_of({"memory_b1"}, {"nothing"}), HasSubstr("got 'nothing'"));
  EXPECT_THAT(error_of({"memory_b1"}, {"memory_b2"}), HasSubstr("steps of different shapes"));
}

}  // namespace
}  // namespace harness
