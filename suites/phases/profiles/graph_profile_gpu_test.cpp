// Profiles of CUDA graphs on a card: kernels of a replay belong to the stage that was open when
// they were captured; path proofs of both codes. Ends with 77 (skipped) where there is no CUDA
// device, or no CUPTI that may be used.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <sstream>

#include "harness/trace/analysis/path_proof.h"
#include "harness/trace/analysis/profile.h"
#include "nsa/backend/kernel_code.h"
#include "nsa/diagnostics/nvtx_range.h"
#include "suites/instrument/cupti/activity_collector.h"
#include "suites/instrument/cupti/captured_call.h"
#include "suites/phases/testing.h"

namespace suites {
namespace {

namespace trace = harness::trace;
using nlohmann::json;
using testing::HasSubstr;

constexpr int64_t kReplays = 3, kAdds = 4;

/// Two stages whose kernels cannot be confused.
struct Stages {
  at::Tensor x = at::randn({256, 256}, at::device(at::kCUDA).dtype(at::kBFloat16));
  at::Tensor w = at::randn({256, 256}, at::device(at::kCUDA).dtype(at::kBFloat16));
  at::Tensor y, total;

  void run() {
    const nsa::NvtxRange outer("stages");
    {
      const nsa::NvtxRange range("stage.product");
      y = at::mm(x, w);
    }
    for (int64_t i = 0; i < kAdds; ++i) {
      const nsa::NvtxRange range("stage.add");
      y = y + 1;
    }
  }
};

trace::Trace replays(ActivityCollector& collector, CapturedCall& captured) {
  collector.clear();
  collector.start();
  for (int64_t i = 0; i < kReplays; ++i) {
    const nsa::NvtxRange step("step");
    const nsa::NvtxRange range("replay");
    captured.replay();
    c10::cuda::device_synchronize();
  }
  collector.stop();
  return collector.take();
}

const trace::RangeRow* row(const trace::Profile& profile, const std::string& name) {
  const auto found = std::ranges::find(profile.ranges, name, &trace::RangeRow::name);
  return found == profile.ranges.end() ? nullptr : &*found;
}

/// Must be seen: each replay has the additions in `stage.add`, the product in `stage.product`, both
/// below `stages`, nothing in `replay` alone, and no node of an unseen capture.
TEST(GraphProfileOnCuda, KernelsOfAReplayBelongToTheStageOfTheirCapture) {
  Stages stages;
  stages.run();  // libraries make their workspaces
  ActivityCollector collector;
  std::optional<CapturedCall> captured;
  collector.watch_captures(
      [&] {
        const nsa::NvtxRange step("step");
        captured.emplace([&] { stages.run(); });
      },
      "step");
  const trace::Trace recorded = replays(collector, *captured);
  const trace::Profile profile = trace::profile(recorded, "step");
  ASSERT_EQ(profile.dropped, 0);
  EXPECT_EQ(profile.unseen_captures, 0);
  EXPECT_EQ(profile.graph_kernels,
            kReplays * static_cast<int64_t>(captured->launches().kernels.size()));
  ASSERT_NE(row(profile, "stage.add"), nullptr);
  ASSERT_NE(row(profile, "stage.product"), nullptr);
  EXPECT_EQ(row(profile, "stage.add")->kernels, kReplays * kAdds);
  EXPECT_EQ(row(profile, "stage.add")->count, kReplays * kAdds);  // entered anew by every replay
  EXPECT_GE(row(profile, "stage.product")->kernels, kReplays);
  EXPECT_EQ(row(profile, "stages")->self, 0);
  EXPECT_EQ(row(profile, "replay")->self, 0);
  EXPECT_EQ(trace::check_shares(profile, 2), "");
  const auto found = trace::attribute(recorded, "step");
  EXPECT_TRUE(
      trace::prove_path(recorded, found, {"stage.add", {"elementwise"}, {"gemm|nvjet"}}).ok);
  EXPECT_FALSE(trace::prove_path(recorded, found, {"stage.product", {"elementwise"}, {}}).ok);
}

/// Must be seen: without the watch every kernel of the graph belongs to the launch's range, all are
/// counted as unseen, and a path that is right is not called proven.
TEST(GraphProfileOnCuda, GraphCapturedUnwatchedProvesNoPath) {
  Stages stages;
  stages.run();
  ActivityCollector collector;
  CapturedCall captured([&] { stages.run(); });
  const trace::Trace recorded = replays(collector, captured);
  const trace::Profile profile = trace::profile(recorded, "step");
  EXPECT_GE(profile.unseen_captures, profile.graph_kernels);
  EXPECT_GT(profile.graph_kernels, 0);
  EXPECT_EQ(row(profile, "stage.add"), nullptr);
  const trace::PathProof proof = trace::prove_path(recorded, trace::attribute(recorded, "step"),
                                                   {"replay", {"elementwise"}, {}});
  EXPECT_FALSE(proof.ok);
  EXPECT_THAT(proof.detail, HasSubstr("whose capture was not seen"));
}

/// Stage -> names of the kernels that ran for it, from the table of paths of a phase.
std::map<std::string, std::set<std::string>> kernels_by_stage(const RecordedCase& recorded) {
  std::map<std::string, std::set<std::string>> stages;
  for (const json& table : recorded.lines("table")) {
    if (table["id"] != "paths") continue;
    for (const json& one : table["rows"]) {
      std::istringstream names(one[4].get<std::string>());
      for (std::string name; std::getline(names, name, ',');)
        stages[one[1]].insert(name.substr(name.find_first_not_of(' ')));
    }
  }
  return stages;
}

json hotspots_args(bool graph) {
  return {{"model", "m7c_125m"}, {"S", 512},   {"accum", 1},         {"steps", 3},
          {"warmup", 6},         {"pairs", 6}, {"cuda_graph", graph}};
}

void expect_paths_proven(const RecordedCase& recorded, int64_t stages) {
  int64_t checked = 0;
  for (const json& check : recorded.lines("check")) {
    const std::string id = check["id"];
    if (!id.starts_with("path/")) continue;
    ++checked;
    EXPECT_TRUE(check["ok"].get<bool>()) << id << ": " << check["detail"];
  }
  EXPECT_EQ(checked, stages);
}

/// Must be seen: a training step as one graph launch has its kernels in the stages of the model,
/// the paths of all branches are proven, and they ran the kernels that single launches run.
TEST(GraphProfileOnCuda, ATrainingStepAsAGraphProvesThePathsThatItsLaunchesProve) {
  const RecordedCase graph("hotspots", hotspots_args(true), at::Device("cuda:0"));
  find_phase_kind("hotspots").run(graph.one());
  const RecordedCase launches("hotspots", hotspots_args(false), at::Device("cuda:0"));
  find_phase_kind("hotspots").run(launches.one());
  EXPECT_GT(graph.metric("profile.graph_kernels_count")["value"], 0);
  EXPECT_EQ(graph.metric("profile.unseen_captures_count")["value"], 0);
  EXPECT_EQ(launches.metric("profile.graph_kernels_count")["value"], 0);
  expect_paths_proven(graph, 6);  // three branches, forward and backward
  expect_paths_proven(launches, 6);
  EXPECT_EQ(kernels_by_stage(graph), kernels_by_stage(launches));
}

/// Kernels of the same names must be distinguished by their code, which the record names.
TEST(GraphProfileOnCuda, TheCodeOfSm80IsProvenByItsOwnKernels) {
  nsa::want_kernels("sm80", at::kCUDA);
  const RecordedCase recorded("hotspots",
                              {{"subject", "attention"},
                               {"S", 2048},
                               {"backend", "fused"},
                               {"steps", 1},
                               {"warmup", 1},
                               {"pairs", 6}},
                              at::Device("cuda:0"));
  find_phase_kind("hotspots").run(recorded.one());
  nsa::want_kernels("auto", at::kCUDA);
  expect_paths_proven(recorded, 3);
  const auto kernels = kernels_by_stage(recorded);
  for (const char* stage : {"cmp_attn", "win_attn"})
    EXPECT_TRUE(kernels.at(stage).contains("nsa::kernels::sm80::interval_attention_kernel"))
        << stage;
}

bool can_record() {
  try {
    const ActivityCollector collector;
    return true;
  } catch (const CollectorUnavailable& why) {
    std::printf("%s: %s\n", why.code().c_str(), why.what());
    return false;
  }
}

}  // namespace
}  // namespace suites

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!at::hasCUDA()) {
    std::puts("no CUDA device: not run");
    return 77;
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  suites::inject_nvtx();  // before the first range
  return suites::can_record() ? RUN_ALL_TESTS() : 77;
}
