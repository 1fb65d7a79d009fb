#include "suites/bench/targets/pair_times.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "nsa/train/memory/tensor_memory.h"
#include "suites/phases/target_call.h"
#include "suites/phases/timing/cpu_arms.h"

namespace suites {
namespace {

using nlohmann::json;

PairTimes two_pairs() {
  PairTimes times({"bf16", "fp32"}, {"forward", "backward"});
  times.add({1, 2}, {{6, 9}, {4, 8}});
  times.add({2, 2}, {{4, 4}, {5, 7}});
  return times;
}

TEST(PairTimes, RatiosAreOfThePairsAndOfTheFasterDenseAttention) {
  json row;
  two_pairs().write(row);
  EXPECT_EQ(row["ours"]["both"]["samples_ms"], (json{3, 4}));
  EXPECT_EQ(row["dense"]["bf16"]["ratio"]["samples"], (json{5, 2}));
  EXPECT_EQ(row["dense"]["fp32"]["ratio"]["samples"], (json{4, 3}));
  EXPECT_EQ(row["ratio"]["samples"], (json{4, 2}));
  EXPECT_EQ(row["ratio"]["n"], 2);
  EXPECT_TRUE(row["ratio"]["lo"].is_null()) << "two pairs have no interval of 99 %";
}

TEST(PairTimes, GoesOnWithTheSamplesOfARow) {
  json row;
  two_pairs().write(row);
  PairTimes again({"bf16", "fp32"}, {"forward", "backward"});
  again.resume(row);
  EXPECT_EQ(again.count(), 2u);
  again.add({1, 1}, {{2, 2}, {2, 2}});
  json longer;
  again.write(longer);
  EXPECT_EQ(longer["ratio"]["samples"], (json{4, 2, 2}));
  EXPECT_EQ(longer["ours"]["forward"]["samples_ms"], (json{1, 2, 1}));
}

TEST(PairTimes, ARowOfOtherArmsOrOfUnequalCountsIsNotResumed) {
  json row;
  two_pairs().write(row);
  PairTimes other({"fp32"}, {"step"});
  other.resume(row);
  EXPECT_EQ(other.count(), 0u);
  row["dense"]["fp32"]["backward"]["samples_ms"].push_back(1);
  PairTimes same({"bf16", "fp32"}, {"forward", "backward"});
  same.resume(row);
  EXPECT_EQ(same.count(), 0u);
  same.resume(json::object());
  EXPECT_EQ(same.count(), 0u);
}

TEST(IsComplete, NeedsThePairsAndNoProblem) {
  json row{{"problems", json::array()}};
  EXPECT_FALSE(is_complete(row, 1));
  two_pairs().write(row);
  EXPECT_TRUE(is_complete(row, 2));
  EXPECT_FALSE(is_complete(row, 3));
  row["problems"].push_back("wrong");
  EXPECT_FALSE(is_complete(row, 2));
}

TEST(RequireSameSetting, NamesWhatDiffers) {
  const json report{
      {"schema", "nsa-bench/2"}, {"device", "x"}, {"libraries", {}}, {"threads", 2}, {"seed", 1}};
  EXPECT_NO_THROW(require_same_setting(report, report));
  json other = report;
  other["threads"] = 8;
  try {
    require_same_setting(other, report);
    ADD_FAILURE() << "accepted";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "--resume: the report has threads 8, this run 2; name another file with --out");
  }
}

TEST(CpuArmBytes, AreLowerBoundsNearTheMeasuredPeaks) {
  constexpr double kMib = 1 << 20;
  nsa::train::watch_tensor_memory(at::kCPU, 0);
  CaseConfig config;
  config.num_heads = 12, config.num_kv_heads = 2, config.qk_head_dim = config.v_head_dim = 64;
  config.block_size = 32, config.block_stride = 16, config.sel_block_size = 64;
  config.top_n = 16, config.window = 512, config.tokens = 1024, config.rope = RopeKind::kNone;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const CpuArmBytes bytes = cpu_arm_bytes(CpuWork::kTraining, config, type, {type});
    const TargetCall call(config, at::kCPU, 1, type, cpu_kernels());
    const DenseArm dense(call.leaves()[0], call.leaves()[1], call.leaves()[2], type);
    const auto share_of = [&](double formula, const auto& work) {
      nsa::train::reset_tensor_peak(at::kCPU);
      const double before = nsa::train::tensor_peak_mib(at::kCPU);
      work();
      return formula / ((nsa::train::tensor_peak_mib(at::kCPU) - before) * kMib);
    };
    const double ours = share_of(bytes.ours, [&] {
      const at::Tensor o = call.forward().o;
      call.backward(o, at::ones_like(o));
    });
    const double whole = share_of(bytes.dense, [&] {
      const at::Tensor o = dense.forward();
      dense.backward(o, at::ones_like(o));
    });
    EXPECT_TRUE(ours > 0.5 && ours <= 1) << c10::toString(type) << ": " << ours;
    EXPECT_TRUE(whole > 0.5 && whole <= 1) << c10::toString(type) << ": " << whole;
  }
}

TEST(CpuArmObstacle, NamesTheArmThatDoesNotFit) {
  CaseConfig config;
  config.num_heads = 64, config.num_kv_heads = 4, config.qk_head_dim = 192, config.v_head_dim = 128;
  config.tokens = 2048;
  EXPECT_EQ(cpu_arm_obstacle(CpuWork::kTraining, config, at::kFloat, {at::kFloat}), "");
  config.tokens = int64_t{1} << 32;
  const std::string both =
      cpu_arm_obstacle(CpuWork::kTraining, config, at::kBFloat16, dense_types(at::kBFloat16));
  EXPECT_NE(both.find("the operator takes "), std::string::npos) << both;
  EXPECT_NE(both.find("; dense attention takes "), std::string::npos) << both;
  EXPECT_NE(both.find(" GiB are available"), std::string::npos) << both;
}

}  // namespace
}  // namespace suites
