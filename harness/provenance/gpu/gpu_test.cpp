#include "harness/provenance/gpu/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using testing::HasSubstr;

TEST(Gpu, MissingDriverIsReported) {
  const GpuList list = list_gpus("libno-such-nvml.so.1");
  EXPECT_FALSE(list.nvml);
  EXPECT_TRUE(list.gpus.empty());
  EXPECT_THAT(list.problem, HasSubstr("no NVIDIA driver"));
  EXPECT_EQ(to_json(list)["count"], 0);
}

TEST(Gpu, LibraryWithoutNvmlFunctionsIsReported) {
  EXPECT_THAT(list_gpus("libm.so.6").problem, HasSubstr("NVML does not start"));
}

TEST(Gpu, ListOrReasonOnThisMachine) {
  const GpuList list = list_gpus();
  EXPECT_NE(list.nvml, !list.problem.empty() && list.gpus.empty());
  for (const GpuFacts& gpu : list.gpus) {
    EXPECT_NE(gpu.name, "");
    EXPECT_THAT(gpu.uuid, HasSubstr("GPU-"));
    EXPECT_GT(gpu.memory_total_mib, 0);
    EXPECT_NE(gpu.cc, "");
  }
}

TEST(Gpu, OnlyWhatIsVisibleIsListed) {
  std::vector<GpuFacts> all(3);
  for (size_t i = 0; i < all.size(); ++i) all[i].index = static_cast<int64_t>(i);
  all[0].uuid = "GPU-aa01", all[1].uuid = "GPU-aa02", all[2].uuid = "GPU-bb03";
  const auto seen = [&](const std::optional<std::string>& value) {
    std::vector<int64_t> indices;
    for (const GpuFacts& gpu : visible_gpus(all, value)) indices.push_back(gpu.index);
    return indices;
  };
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(seen(std::nullopt), ElementsAre(0, 1, 2));
  EXPECT_THAT(seen("MIG-aa01"), ElementsAre(0, 1, 2)) << "its GPU is one of them";
  EXPECT_THAT(seen("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(seen("GPU-bb, 1"), ElementsAre(2, 1));
  EXPECT_THAT(seen("GPU-aa"), IsEmpty()) << "names two";
  EXPECT_THAT(seen("1,-1,0"), ElementsAre(1)) << "what follows an unknown one is not seen";
  for (const char* none : {"", "-1", "3", "none", "1x", "NoDevFiles"})
    EXPECT_THAT(seen(none), IsEmpty()) << none;
}

TEST(Gpu, ForeignMemoryFallsBackToUsedMemory) {
  GpuFacts gpu;
  EXPECT_TRUE(gpu.exclusive());
  gpu.memory_used_mib = 900;
  EXPECT_EQ(gpu.foreign_mib(), 900);
  EXPECT_FALSE(gpu.exclusive());
  gpu.memory_used_mib = 0;
  gpu.processes.push_back({.pid = 7, .mib = std::nullopt, .name = ""});
  EXPECT_FALSE(gpu.exclusive());
  gpu.processes[0].mib = 1200;
  EXPECT_EQ(gpu.foreign_mib(), 1200);
}

}  // namespace
}  // namespace harness
