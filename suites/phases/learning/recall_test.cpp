// The kind `recall` in small: what it reports of each attention, and what it cannot compare.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "suites/phases/learning/task_training.h"
#include "suites/phases/testing.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

using nlohmann::json;

std::string tiny_recall_model() {
  const std::string file = testing::TempDir() + "/recall_model.json";
  std::ofstream(file)
      << R"({"name": "small", "vocab": 256, "dim": 32, "num_layers": 2, "mlp_hidden": 32, "seq_len": 32,
      "attention": {"num_heads": 2, "num_kv_heads": 1, "qk_head_dim": 16, "v_head_dim": 16, "block_size": 8,
      "block_stride": 8, "sel_block_size": 8, "top_n": 4, "window": 8}})";
  return file;
}

json small_recall(const json& more = json::object()) {
  json args = {{"model", tiny_recall_model()},
               {"S", 32},
               {"pairs", 2},
               {"vocab", 16},
               {"gap", 8},
               {"rows", 200},
               {"seeds", 2},
               {"steps", 4},
               {"val_rows", 32},
               {"warmup", 1}};
  args.update(more);
  return args;
}

TEST(RecallPhase, EveryAttentionIsTrainedWithEverySeedOnTheSameRows) {
  const RecordedCase recorded("recall", small_recall());
  EXPECT_EQ(run_recall(recorded.one()), "");
  std::map<std::string, int> figures;
  for (const json& line : recorded.lines("metric"))
    if (line["value"].is_number()) ++figures[line["name"]];
  for (const char* name : {"dense.accuracy_pct", "nsa.accuracy_pct", "no_selected.accuracy_pct"})
    EXPECT_EQ(figures[name], 2) << name;
  std::set<std::string> curves;
  for (const json& beat : recorded.lines("beat")) curves.insert(beat["extra"]["line"]);
  EXPECT_EQ(curves.size(), 6u);
  EXPECT_EQ(recorded.lines("table").at(0)["rows"].size(), 6u);
}

/// What an arm found is in the record when it ends: a run that is cut off keeps it.
TEST(RecallPhase, ResultsAreReportedAsEachArmEnds) {
  const RecordedCase recorded("recall", small_recall({{"threads", 1}}));
  run_recall(recorded.one());
  const json first = recorded.metric("dense.accuracy_pct");
  for (const json& beat : recorded.lines("beat"))
    EXPECT_EQ(beat["extra"]["line"] == "dense, seed 0", beat["t"] < first["t"]) << beat;
}

TEST(RecallPhase, HeartbeatsFollowTheClockWhereStepsAreSlow) {
  EXPECT_TRUE(beat_is_due(20, 2000, 0));
  EXPECT_TRUE(beat_is_due(1999, 1999, 0));
  EXPECT_FALSE(beat_is_due(21, 2000, 0.5));
  EXPECT_TRUE(beat_is_due(21, 2000, 1.1));
  EXPECT_TRUE(beat_is_due(1, 4, 0));
}

/// Operators of LibTorch in the place of kernels, and kernels that never ran, are failures.
TEST(RecallPhase, KernelsThatDidNotRunAreAFailedCheck) {
  const RecordedCase recorded("recall", small_recall({{"fault", "plain_selection"}, {"seeds", 1}}));
  run_recall(recorded.one());
  std::map<std::string, bool> ok;
  for (const json& check : recorded.lines("check")) ok.emplace(check["id"], check["ok"]);
  EXPECT_EQ(ok.size(), 8u);  // four stages of NSA and of no_selected
  EXPECT_TRUE(ok.at("path/win_attn/nsa, seed 0"));
  EXPECT_FALSE(ok.at("path/sel_attn/nsa, seed 0"));
  for (const auto& check : kernel_checks(recorded.one(), {}, "nsa")) EXPECT_FALSE(check.ok);
}

/// Four steps teach nothing: then NSA is not held against dense attention, and no figure claims
/// that it is not behind.
TEST(RecallPhase, WhatDenseAttentionDidNotLearnComparesNothing) {
  const RecordedCase recorded("recall", small_recall());
  run_recall(recorded.one());
  EXPECT_EQ(recorded.metric("seeds.compared_count")["value"], 0);
  EXPECT_TRUE(recorded.metric("nsa.behind_pct")["value"].is_null());
}

/// The same seed gives the same figures, and other blocks change what NSA learns.
TEST(RecallPhase, BlocksThatAreRandomChangeNsaAlone) {
  const auto loss_of = [](const json& more) {
    const RecordedCase recorded("recall", small_recall(more));
    EXPECT_EQ(run_recall(recorded.one()), "");
    std::map<std::string, json> losses;
    const json rows = recorded.lines("table").at(0)["rows"];
    for (const json& row : rows) losses.emplace(row[0], row[3]);  // of the first seed
    return losses;
  };
  auto healthy = loss_of(json::object()), again = loss_of(json::object()),
       random = loss_of(json{{"fault", "random_blocks"}});
  EXPECT_EQ(healthy, again);
  EXPECT_EQ(healthy.at("dense"), random.at("dense"));
  EXPECT_NE(healthy.at("nsa"), random.at("nsa"));
  EXPECT_THROW(loss_of(json{{"fault", "other"}}), ConfigError);
}

}  // namespace
}  // namespace suites
