// The part of a profile of several ranks that needs no GPU: the group, common decisions and the
// steps that are profiled. The ranks are threads over Gloo.
#include "suites/phases/phase_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "nsa/program/input_error.h"
#include "nsa/train/ranks/rank_threads_testing.h"
#include "suites/phases/profiles/profiled_step.h"
#include "suites/phases/testing.h"

namespace suites {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kLength = 16;

/// A model of two layers that a step takes milliseconds for.
std::string small_model() {
  const std::string file = testing::TempDir() + "/phase_ranks_model.json";
  std::ofstream(file)
      << R"({"name": "small", "vocab": 64, "dim": 32, "num_layers": 2, "mlp_hidden": 64, "seq_len": 16,
      "attention": {"num_heads": 4, "num_kv_heads": 2, "qk_head_dim": 8, "v_head_dim": 8, "block_size": 4,
      "block_stride": 2, "sel_block_size": 8, "top_n": 3, "window": 8}})";
  return file;
}

/// Calls `work` on both ranks at once; the first error is thrown here.
void two_ranks(const std::function<void(const PhaseRanks&)>& work) {
  nsa::train::on_rank_threads(
      2, [&](const nsa::train::RankPlace& place, std::unique_ptr<nsa::train::RankGroup>& group) {
        PhaseRanks ranks{place, std::move(group)};
        work(ranks);
        group = std::move(ranks.group);
      });
}

TEST(PhaseRanks, DecideAlikeFromTheirMean) {
  two_ranks([](const PhaseRanks& ranks) {
    EXPECT_EQ(ranks.reports(), ranks.place.rank == 0);
    EXPECT_DOUBLE_EQ(ranks.mean(ranks.place.rank == 0 ? 1 : 4), 2.5);
  });
  EXPECT_DOUBLE_EQ(PhaseRanks().mean(7), 7);
  EXPECT_TRUE(PhaseRanks().reports());
}

/// Both ranks take the same number of steps, and each step sends its gradients.
TEST(PhaseRanks, TakeTheStepsOfAProfileTogether) {
  const json args = {{"model", small_model()}, {"B", 3}, {"accum", 2}, {"ranks", 2}};
  two_ranks([&](const PhaseRanks& ranks) {
    const RecordedCase recorded("hotspots", args);
    const ProfiledStep step = make_profiled_step(recorded.one(), ranks.group.get());
    EXPECT_EQ(step.range, "train.step");
    EXPECT_EQ(step.tokens, 2 * 3 * 2 * kLength) << "what all ranks do in a step";
    for (int i = 0; i < 3; ++i) EXPECT_GT(step.run_ms(), 0);
    EXPECT_FALSE(step.ran().empty());
    const ProfiledStep half = make_profiled_step(recorded.one(), ranks.group.get(), kLength / 2);
    EXPECT_EQ(half.tokens, step.tokens / 2);
    EXPECT_GT(half.run_ms(), 0);
  });
}

TEST(PhaseRanks, RefuseSubjectAttention) {
  const json args = {{"model", small_model()}, {"subject", "attention"}, {"ranks", 2}};
  two_ranks([&](const PhaseRanks& ranks) {
    const RecordedCase recorded("hotspots", args);
    try {
      make_profiled_step(recorded.one(), ranks.group.get());
      ADD_FAILURE() << "was made";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("args.ranks must be 1 with subject attention, got 2"));
    }
  });
}

TEST(PhaseRanks, OneProcessHasNoGroupAndSeveralMustBeStarted) {
  const RecordedCase alone("hotspots");
  EXPECT_EQ(open_ranks(alone.one(), 1).group, nullptr);
  const RecordedCase two("hotspots", {{"ranks", 2}});
  EXPECT_THROW(open_ranks(two.one(), 1), nsa::InputError) << "this process is one of one";
  EXPECT_THROW(open_ranks(alone.one(), 2), nsa::InputError) << "a sweep needs two at least";
  const RecordedCase none("hotspots", {{"ranks", 0}});
  EXPECT_THROW(open_ranks(none.one(), 1), ConfigError);
}

TEST(PhaseRanks, UnreportedCaseKeepsIdAndArgumentsAndDiscardsLines) {
  const RecordedCase recorded("hotspots", {{"steps", 9}});
  const UnreportedCase unreported(recorded.one());
  EXPECT_EQ(unreported.one().id, recorded.one().id);
  EXPECT_EQ(unreported.one().args.get_int("steps", 0, 0), 9);
  unreported.one().emitter.check({.case_id = "main", .id = "x", .ok = true});
  EXPECT_TRUE(recorded.lines("check").empty());
}

}  // namespace
}  // namespace suites
