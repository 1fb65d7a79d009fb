#include "harness/provenance/gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace harness {
namespace {

using testing::HasSubstr;

TEST(Gpu, MissingDriverIsSaid) {
  const GpuList list = list_gpus("libno-such-nvml.so.1");
  EXPECT_FALSE(list.nvml);
  EXPECT_TRUE(list.gpus.empty());
  EXPECT_THAT(list.problem, HasSubstr("no NVIDIA driver"));
  EXPECT_EQ(to_json(list)["count"], 0);
}

TEST(Gpu, LibraryWithoutNvmlFunctionsIsSaid) {
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
