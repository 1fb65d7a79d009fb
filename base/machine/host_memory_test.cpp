#include "base/machine/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace base {
namespace {

/// A tree of system files.
class HostMemory : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "host_memory";
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void write_machine() const {
    write("/proc/meminfo", "MemTotal:  4096 kB\nMemAvailable:    2048 kB\nCached: 1 kB\n");
  }

  std::string root_;
};

TEST_F(HostMemory, IsThatOfTheMachineWithoutALimit) {
  EXPECT_FALSE(available_memory(root_));
  write_machine();
  EXPECT_EQ(available_memory(root_), 2048 * 1024);
  write("/proc/self/cgroup", "0::/user\n");
  write("/sys/fs/cgroup/user/memory.max", "max\n");
  write("/sys/fs/cgroup/user/memory.current", "4096\n");
  EXPECT_EQ(available_memory(root_), 2048 * 1024);
}

TEST_F(HostMemory, IsWhatTheTightestControlGroupLeaves) {
  write_machine();
  write("/proc/self/cgroup", "0::/user/job\n");
  write("/sys/fs/cgroup/user/job/memory.max", "1000000\n");
  write("/sys/fs/cgroup/user/job/memory.current", "400000\n");
  write("/sys/fs/cgroup/user/job/memory.stat", "anon 300000\ninactive_file 50000\n");
  EXPECT_EQ(available_memory(root_), 650000);
  write("/sys/fs/cgroup/user/memory.max", "1000000\n");
  write("/sys/fs/cgroup/user/memory.current", "900000\n");
  EXPECT_EQ(available_memory(root_), 100000) << "the group above it";
  write("/sys/fs/cgroup/user/memory.current", "1900000\n");
  EXPECT_EQ(available_memory(root_), 0);
}

TEST_F(HostMemory, ReadsTheFirstVersionOfControlGroups) {
  write_machine();
  write("/proc/self/cgroup", "4:cpu,cpuacct:/\n2:memory:/docker/a\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "300000\n");
  write("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1000\n");
  EXPECT_EQ(available_memory(root_), 201000) << "a container sees its group as the root";
}

TEST_F(HostMemory, OfThisMachineIsKnown) {
  const auto bytes = available_memory();
  ASSERT_TRUE(bytes);
  EXPECT_GT(*bytes, 1 << 20);
}

TEST(GibText, HasThreeDigitsAndNoExponent) {
  EXPECT_EQ(gib_text(1.5 * (1 << 30)), "1.5 GiB");
  EXPECT_EQ(gib_text(138.6 * (1 << 30)), "139 GiB");
  EXPECT_EQ(gib_text(8311.0 * (1 << 30)), "8311 GiB");
}

}  // namespace
}  // namespace base
