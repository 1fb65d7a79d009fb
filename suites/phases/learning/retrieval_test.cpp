// The kind `retrieval` in small: which cells it reads, and what it holds NSA against.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "suites/phases/testing.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

nlohmann::json small_retrieval(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json args = {
      {"S", 192},    {"lengths", {160, 224}}, {"depths", {0, 100}}, {"digits", 1},
      {"rows", 100}, {"val_rows", 8},         {"steps", 2},         {"batch", 2},
      {"warmup", 1}};
  args.update(more);
  return args;
}

TEST(RetrievalPhase, EveryLengthAndDepthIsRead) {
  const RecordedCase recorded("retrieval", small_retrieval());
  EXPECT_EQ(run_retrieval(recorded.one()), "");
  const auto tables = recorded.lines("table");
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0]["id"], "dense.heat_map");
  EXPECT_EQ(tables[0]["columns"],
            nlohmann::json({"tokens of a row by text before the number, % of all", "0", "100"}));
  for (const nlohmann::json& table : tables) {
    ASSERT_EQ(table["rows"].size(), 2u);
    EXPECT_EQ(table["rows"][1][0], 224);
    for (const nlohmann::json& row : table["rows"])
      for (size_t i = 1; i < row.size(); ++i) {
        EXPECT_GE(row[i], 0);
        EXPECT_LE(row[i], 100);
      }
  }
  EXPECT_TRUE(recorded.metric("dense.trained_pct")["value"].is_number());
}

/// Two steps teach nothing: no cell is compared, and no figure claims that NSA retrieves.
TEST(RetrievalPhase, WhatDenseAttentionDoesNotRetrieveComparesNothing) {
  const RecordedCase recorded("retrieval", small_retrieval());
  run_retrieval(recorded.one());
  EXPECT_EQ(recorded.metric("cells.compared_count")["value"], 0);
  EXPECT_TRUE(recorded.metric("nsa.where_dense_pct").is_null());
}

/// Shorter rows come first, as many tokens a step.
TEST(RetrievalPhase, ShorterRowsAreTrainedOnFirst) {
  const RecordedCase recorded(
      "retrieval",
      small_retrieval({{"first_S", {160, 176}}, {"first_steps", {2, 3}}, {"least_S", 150}}));
  EXPECT_EQ(run_retrieval(recorded.one()), "");
  std::map<std::string, int64_t> steps;
  for (const nlohmann::json& beat : recorded.lines("beat"))
    if (beat["extra"]["line"].get<std::string>().starts_with("nsa")) steps[beat["at"]] = beat["of"];
  EXPECT_EQ(steps["first step"], 3);
  EXPECT_EQ(steps["step"], 2);
  const RecordedCase half("retrieval", small_retrieval({{"first_S", {160}}}));
  EXPECT_THROW(run_retrieval(half.one()), ConfigError);
}

/// Losses of a dense model, by the kind of step.
std::map<std::string, std::vector<double>> dense_losses(nlohmann::json args) {
  args.update({{"attention", {"dense"}}});
  const RecordedCase recorded("retrieval", small_retrieval(args));
  EXPECT_EQ(run_retrieval(recorded.one()), "");
  std::map<std::string, std::vector<double>> found;
  for (const nlohmann::json& beat : recorded.lines("beat"))
    if (beat["extra"].contains("loss")) found[beat["at"]].push_back(beat["extra"]["loss"]);
  return found;
}

/// A rate of their own for longer rows is in force: with one of 0.3 the last two steps, and only
/// they, leave other losses.
TEST(RetrievalPhase, LongerRowsHaveALearningRateOfTheirOwn) {
  const auto losses = [](double later) {
    return dense_losses(
        {{"first_S", {160}}, {"first_steps", {3}}, {"warmup", 0}, {"later_lr", later}});
  };
  auto same = losses(0), other = losses(0.3);
  EXPECT_EQ(same["first step"], other["first step"]);
  ASSERT_EQ(same["step"].size(), 2u);
  EXPECT_NE(same["step"].back(), other["step"].back());
  const RecordedCase alone("retrieval", small_retrieval({{"later_lr", 0.1}}));
  EXPECT_THROW(run_retrieval(alone.one()), ConfigError);
}

/// Questions of longer rows end from a quarter of them on: with 150 asked for rows of 768 are those
/// of 192, while the shorter ones differ. A rate of 0 leaves the first weights until then.
TEST(RetrievalPhase, LongerRowsEndFromAQuarterOn) {
  const auto losses = [](int64_t least) {
    return dense_losses({{"S", 768},
                         {"first_S", {224}},
                         {"first_steps", {2}},
                         {"least_S", least},
                         {"lr", 0},
                         {"later_lr", 0.001}});
  };
  auto asked = losses(150), quarter = losses(192);
  EXPECT_NE(asked["first step"], quarter["first step"]);
  ASSERT_EQ(asked["step"].size(), 2u);
  EXPECT_EQ(asked["step"], quarter["step"]);
  EXPECT_NE(asked["step"], losses(220)["step"]);
}

/// No model to train is no case to judge; no shorter rows are fine.
TEST(RetrievalPhase, AnEmptyListOfModelsIsRefused) {
  const RecordedCase none("retrieval", small_retrieval({{"attention", nlohmann::json::array()}}));
  EXPECT_THROW(run_retrieval(none.one()), ConfigError);
  const RecordedCase plain("retrieval",
                           small_retrieval({{"first_S", nlohmann::json::array()},
                                            {"first_steps", nlohmann::json::array()}}));
  EXPECT_EQ(run_retrieval(plain.one()), "");
}

/// An injected fault acts at the lengths that are read, too.
TEST(RetrievalPhase, RandomBlocksAreReadAtEveryLength) {
  const RecordedCase recorded("retrieval", small_retrieval({{"fault", "random_blocks"}}));
  EXPECT_EQ(run_retrieval(recorded.one()), "");
  EXPECT_EQ(recorded.lines("table").size(), 2u);
  const RecordedCase wrong("retrieval", small_retrieval({{"fault", "other"}}));
  EXPECT_THROW(run_retrieval(wrong.one()), ConfigError);
}

}  // namespace
}  // namespace suites
