// The runbook `quality`, which wants a GPU, in small on a CPU, and whether its sizes have kernels.
#include <gtest/gtest.h>

#include <set>

#include "base/testing/paths.h"
#include "nsa/backend/branch_choice.h"
#include "nsa/backend/known_cards.h"
#include "nsa/model/model_config.h"
#include "suites/phases/learning/size_variants.h"
#include "suites/phases/testing.h"
#include "suites/phases/training_phases.h"

namespace suites {
namespace {

/// Those that run one of these kinds.
nlohmann::json phases_of_quality(const std::set<std::string>& kinds) {
  std::ifstream file(base::source_dir() + "/configs/runbooks/quality.json");
  const auto book = nlohmann::json::parse(file, nullptr, true, /*ignore_comments=*/true);
  nlohmann::json phases = nlohmann::json::array();
  for (const nlohmann::json& phase : book["phases"])
    if (kinds.contains(phase["run"])) phases.push_back(phase);
  EXPECT_GE(phases.size(), 2U);
  return phases;
}
const std::set<std::string> kTasks = {"nsa-worker:recall", "nsa-worker:retrieval"};

void expect_kernels(const nsa::NsaConfig& c, const std::string& where) {
  const auto chosen = nsa::choose_branches({.num_heads = c.num_heads,
                                            .num_kv_heads = c.num_kv_heads,
                                            .qk_head_dim = c.qk_head_dim,
                                            .v_head_dim = c.v_head_dim,
                                            .block_size = c.block_size,
                                            .block_stride = c.block_stride,
                                            .sel_block_size = c.sel_block_size,
                                            .top_n = c.top_n,
                                            .num_keys = 32768},
                                           nsa::kH100, "auto");
  for (const auto& branch : {chosen.compressed, chosen.window, chosen.selected})
    EXPECT_EQ(branch.obstacle, "") << where;
}

/// What the runbook of the GPU asks for, with few rows and steps, and no longer than a CPU can.
TEST(RunbookQuality, EveryPhaseRunsInSmallOnACpu) {
  for (const nlohmann::json& phase : phases_of_quality(kTasks)) {
    const std::string kind = phase["run"] == "nsa-worker:recall" ? "recall" : "retrieval";
    nlohmann::json args = phase["args"];
    args.update({{"seeds", 1}, {"steps", 1}, {"batch", 1}, {"rows", 4}, {"val_rows", 2}});
    if (kind == "retrieval")
      args.update({{"S", 512},
                   {"first_S", {256, 384}},
                   {"first_steps", {1, 1}},
                   {"least_S", 256},
                   {"lengths", {512, 1024}}});
    const RecordedCase recorded(kind, args);
    EXPECT_EQ(kind == "recall" ? run_recall(recorded.one()) : run_retrieval(recorded.one()), "");
    const auto checks = recorded.lines("check");
    EXPECT_GE(checks.size(), 4u) << phase["id"];
    for (const nlohmann::json& check : checks) EXPECT_TRUE(check["ok"]) << check;
  }
}

/// Its models have sizes that the kernels of an H100 have, at every length that is read.
TEST(RunbookQuality, AnH100HasKernelsForItsModels) {
  for (const nlohmann::json& phase : phases_of_quality(kTasks)) {
    const std::string model = phase["args"]["model"];
    expect_kernels(nsa::load_model_config(model, nsa::model_config_folders()).attention, model);
  }
  for (const nlohmann::json& phase : phases_of_quality({"nsa-worker:validation"})) {
    const auto model = nsa::load_model_config(phase["args"]["model"], nsa::model_config_folders());
    for (const std::string variant : phase["args"]["attention"])
      if (variant != "dense") expect_kernels(with_variant(model, variant).attention, variant);
  }
}

}  // namespace
}  // namespace suites
