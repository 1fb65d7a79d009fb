#include "nsa/train/loop/training_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nsa/program/input_error.h"

namespace nsa::train {
namespace {

TrainingAttention asked(const SwitchSet::Values& switches, const std::string& backend = "auto",
                        const char* device = "cuda") {
  return training_attention(SwitchSet::from(switches, {}, {}), backend, c10::Device(device));
}

std::string backends(const TrainingAttention& a) {
  return to_string(a.options.cmp) + " " + to_string(a.options.sel) + " " + to_string(a.options.win);
}

TEST(TrainingAttention, TakesTheKernelsWhereNoSwitchDecides) {
  EXPECT_EQ(backends(asked({})), "fused fused fused");
  EXPECT_EQ(backends(asked({}, "auto", "cpu")), "cpu cpu cpu");
  EXPECT_EQ(backends(asked({{"NSA_SEL_RANGES_V2", "0"}}, "auto", "cpu")), "plain cpu cpu");
  EXPECT_EQ(backends(asked({}, "switches", "cpu")), "plain gather plain");
  EXPECT_EQ(backends(asked({}, "switches")), "plain gather plain");
  EXPECT_EQ(backends(asked({}, "fused", "cpu")), "fused fused fused");
  EXPECT_EQ(backends(asked({{"NSA_USE_SEL_VARLEN", "1"}})), "fused varlen fused");
  EXPECT_EQ(backends(asked({{"NSA_USE_FA2_WIN", "1"}})), "fused fused flash");
  EXPECT_EQ(backends(asked({{"NSA_SEL_RANGES_V2", "0"}})), "plain fused fused");
  EXPECT_EQ(backends(asked({{"NSA_FORCE_PARITY", "1"}})), "plain gather plain");
}

TEST(TrainingAttention, RefusesWordsAndContradictions) {
  EXPECT_THROW(asked({}, "fast"), InputError);
  EXPECT_THROW(asked({{"NSA_USE_SEL_MASK", "1"}}, "fused"), InputError);
  EXPECT_THROW(asked({{"NSA_SEL_RANGES_V2", "0"}}, "fused"), InputError);
}

TEST(TrainingAttention, OnlyUnsetBranchesAreAuto) {
  const RanBackend selected{"sel_attn", "gather", 1, "fused", "", "needs CUDA"};
  const RanBackend window{"win_attn", "plain", 1, "flash", "", "needs CUDA"};
  EXPECT_EQ(asked({}).requested(selected), "auto");
  const RanBackend on_cpu{"sel_attn", "gather", 1, "cpu", "", "the type"};
  EXPECT_EQ(asked({}, "auto", "cpu").requested(on_cpu), "auto");
  EXPECT_EQ(asked({}, "fused").requested(selected), "fused") << "asked for by name: held to it";
  EXPECT_EQ(asked({{"NSA_USE_FA2_WIN", "1"}}).requested(window), "flash");
}

}  // namespace
}  // namespace nsa::train
