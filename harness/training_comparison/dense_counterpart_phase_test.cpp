// Training beside a counterpart, on a recorded run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/testing/paths.h"
#include "harness/evidence/storage/packed_run.h"
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

const std::string kRun = base::source_dir() + "/reports/samples/core_fixes-h200";

base::protocol::Transcript counterparts_of(const List& of, const List& against) {
  const TempDir dir;
  const json args = {{"of", of}, {"against", against}};
  return run_alone(dir / "raw.jsonl", args, [](BuiltinCall call, auto& emitter) {
    call.run_dir = kRun;
    run_dense_counterpart(call, emitter);
  });
}

std::string error_of(const List& of, const List& against) {
  try {
    counterparts_of(of, against);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(DenseCounterpartPhase, FiguresAreThoseOfTheRecordedRun) {
  const auto transcript =
      counterparts_of({"tput_s2048_b1", "tput_s512_b2"}, {"memory_b1", "tput_s512_b2"});
  EXPECT_TRUE(transcript.violations.empty());
  EXPECT_EQ(end_of(transcript), "ok");
  const json rows = rows_of(transcript, "dense_counterpart");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0],
            (json{"tput_s2048_b1", "memory_b1", 2048, 1, 284600, 157400, 1.81, 1627, 1627}));
  EXPECT_EQ(rows[1][6], 1);
  EXPECT_EQ(metric_of(transcript, "pairs.compared_count"), 2);
  EXPECT_NEAR(metric_of(transcript, "memory.per_token_growth_ratio").get<double>(),
              1627.328125 / 2048 / (1406.39746094 / 1024), 1e-9);
}

TEST(DenseCounterpartPhase, OneLengthShowsNoGrowth) {
  const auto transcript = counterparts_of({"memory_b1"}, {"memory_b1"});
  EXPECT_EQ(metric_of(transcript, "pairs.compared_count"), 1);
  EXPECT_EQ(metric_of(transcript, "memory.per_token_growth_ratio"), nullptr);
}

/// A row of 2,048 tokens that takes three times what was measured.
TEST(DenseCounterpartPhase, MemoryOfLongerSequencesIsSeenToGrow) {
  const TempDir dir;
  const auto copy = dir / "run";
  std::filesystem::copy(kRun, copy, std::filesystem::copy_options::recursive);
  unpack_run(copy);
  const auto file = copy / "phases/tput_s2048_b1/g01.jsonl";
  std::string lines;
  std::istringstream in(read_bytes(file));
  for (std::string line; std::getline(in, line);) {
    json parsed = json::parse(line);
    if (parsed.value("name", "") == "memory.peak_mib")
      parsed["value"] = 3 * parsed["value"].get<double>();
    lines += parsed.dump() + "\n";
  }
  write_bytes(file, lines);
  const json args = {{"of", {"tput_s2048_b1", "tput_s512_b2"}},
                     {"against", {"memory_b1", "tput_s512_b2"}}};
  const auto transcript = run_alone(dir / "raw.jsonl", args, [&](BuiltinCall call, auto& emitter) {
    call.run_dir = copy;
    run_dense_counterpart(call, emitter);
  });
  EXPECT_GT(metric_of(transcript, "memory.per_token_growth_ratio").get<double>(), 1.1);
}

/// A phase that was cut off before its first step has empty cells, and is not compared.
TEST(DenseCounterpartPhase, APhaseWithoutFiguresIsShownAndNotCompared) {
  const TempDir dir;
  const auto copy = dir / "run";
  std::filesystem::copy(kRun, copy, std::filesystem::copy_options::recursive);
  unpack_run(copy);
  write_bytes(copy / "phases/memory_b1/phase.json",
              R"({"phase": "memory_b1", "status": "FAILED", "cause": "OOM", "reason": "r"})");
  std::filesystem::remove(copy / "phases/memory_b1/g01.jsonl");
  const json args = {{"of", {"tput_s2048_b1"}}, {"against", {"memory_b1"}}};
  const auto transcript = run_alone(dir / "raw.jsonl", args, [&](BuiltinCall call, auto& emitter) {
    call.run_dir = copy;
    run_dense_counterpart(call, emitter);
  });
  EXPECT_EQ(end_of(transcript), "ok");
  EXPECT_EQ(metric_of(transcript, "pairs.compared_count"), 0);
  const json row = rows_of(transcript, "dense_counterpart")[0];
  EXPECT_EQ(row[5], nullptr);
  EXPECT_EQ(row[6], nullptr);
  EXPECT_EQ(row[4], 284600);
}

TEST(DenseCounterpartPhase, WhatCannotBeComparedIsNamed) {
  EXPECT_THAT(error_of({}, {}), HasSubstr("at least one, got 0 and 0"));
  EXPECT_THAT(error_of({"memory_b1"}, {}), HasSubstr("got 1 and 0"));
  EXPECT_THAT(error_of({"oracle"}, {"memory_b1"}), HasSubstr("got 'oracle'"));
  EXPECT_THAT(error_of({"memory_b1"}, {"nothing"}), HasSubstr("got 'nothing'"));
  EXPECT_THAT(error_of({"memory_b1"}, {"memory_b2"}), HasSubstr("steps of different shapes"));
}

}  // namespace
}  // namespace harness
