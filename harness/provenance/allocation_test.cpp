#include "harness/provenance/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

/// A folder in front of PATH, for a scontrol of its own; both are as before behind the test.
class AllocationTest : public testing::Test {
 protected:
  AllocationTest() : path_(std::getenv("PATH")) {
    fs::create_directories(dir_);
    setenv("PATH", (dir_.string() + ":" + path_).c_str(), 1);
  }
  ~AllocationTest() override {
    setenv("PATH", path_.c_str(), 1);
    unsetenv("SLURM_JOB_NODELIST");
    fs::remove_all(dir_);
  }
  void scontrol(const std::string& does) {
    std::ofstream(dir_ / "scontrol") << "#!/bin/sh\n" << does << "\n";
    fs::permissions(dir_ / "scontrol", fs::perms::owner_all);
    setenv("SLURM_JOB_NODELIST", "node[1-2]", 1);
  }

  const std::string path_;
  const fs::path dir_ =
      fs::path(testing::TempDir()) / ("harness_allocation_" + std::to_string(::getpid()));
};

TEST_F(AllocationTest, NodesAreThoseThatSlurmNames) {
  scontrol("test \"$1 $2 $3\" = 'show hostnames node[1-2]' && printf 'node1\\nnode2\\n'");
  EXPECT_THAT(allocated_nodes(), ElementsAre("node1", "node2"));
}

TEST_F(AllocationTest, NoneOutsideOrWhereSlurmDoesNotNameThem) {
  scontrol("echo node1; exit 1");
  EXPECT_THAT(allocated_nodes(), IsEmpty()) << "of a command that fails";
  unsetenv("SLURM_JOB_NODELIST");
  scontrol("echo node1");
  unsetenv("SLURM_JOB_NODELIST");
  EXPECT_THAT(allocated_nodes(), IsEmpty()) << "outside of an allocation";
}

}  // namespace
}  // namespace harness
