// Training beside a twin: the growth of memory by hand, the table on a recorded run.
#include "harness/builtin/twins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/builtin/builtins.h"
#include "harness/builtin/run_alone.h"
#include "harness/evidence/temp_dir.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using List = std::vector<std::string>;

constexpr const char* kRun = NSA_SOURCE_DIR "/reports/samples/core_fixes-h200";

TEST(MemoryGrowth, ByHand) {
  // Linear behind 100 MiB that every run has once.
  const StepMemory few{256, 512, 151.2}, rows{256, 1024, 202.4}, row{1024, 1024, 202.4};
  EXPECT_DOUBLE_EQ(*memory_growth({few, rows, row}), 1);
  // A buffer of length x length.
  EXPECT_DOUBLE_EQ(*memory_growth({few, rows, {1024, 1024, 404.8}}), 2);
  EXPECT_DOUBLE_EQ(*memory_growth({{1024, 1024, 100}, {256, 1024, 200}}), 0.5);
}

TEST(MemoryGrowth, NeedsLongerRowsInAStepOfNoFewerTokens) {
  EXPECT_FALSE(memory_growth({}));
  EXPECT_FALSE(memory_growth({{256, 512, 10}, {256, 1024, 20}}));
  EXPECT_FALSE(memory_growth({{256, 1024, 10}, {1024, 512, 20}}));
}

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
  EXPECT_EQ(said.ended.at("all").status, "ok");
  const auto* table = find_line<protocol::Table>(said, [](const auto&) { return true; });
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->rows.size(), 2u);
  EXPECT_EQ(table->rows[0],
            (json{"tput_s2048_b1", "memory_b1", 2048, 1, 4385, 4436, 0.989, 2416, 2416}));
  EXPECT_EQ(table->rows[1][6], 1);
  const auto value = [&](const std::string& name) {
    return find_line<protocol::Metric>(said, [&](const auto& m) { return m.name == name; })->value;
  };
  EXPECT_EQ(value("pairs.compared_count"), 2);
  EXPECT_NEAR(value("memory.per_token_growth_ratio").get<double>(),
              2416.35009766 / 2048 / (1979.97802734 / 1024), 1e-9);
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
