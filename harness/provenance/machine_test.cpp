#include "harness/provenance/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace harness {
namespace {

TEST(Machine, NoSecretMayBeRecorded) {
  for (const char* allowed : {"NSA_NVTX", "NCCL_ALGO", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
                              "PYTORCH_CUDA_ALLOC_CONF"})
    EXPECT_TRUE(is_recorded_variable(allowed)) << allowed;
  for (const char* refused :
       {"PATH", "HOME", "AWS_SECRET_ACCESS_KEY", "CUDA_API_TOKEN", "NCCL_PASSWORD", "", "XNSA_A"})
    EXPECT_FALSE(is_recorded_variable(refused)) << refused;
}

TEST(Machine, VariablesAreSwitchesOrForeign) {
  ::setenv("NSA_MACHINE_TEST", "a=b", 1);
  ::setenv("OMP_MACHINE_TEST", "2", 1);
  ::setenv("MACHINE_TEST", "x", 1);
  const auto variables = environment_variables();
  EXPECT_EQ(variables["effective"]["NSA_MACHINE_TEST"], "a=b");
  EXPECT_EQ(variables["foreign"]["OMP_MACHINE_TEST"], "2");
  EXPECT_EQ(variables.dump().find("\"MACHINE_TEST\""), std::string::npos);
  for (const char* name : {"NSA_MACHINE_TEST", "OMP_MACHINE_TEST", "MACHINE_TEST"})
    ::unsetenv(name);
}

TEST(Machine, DiskOfAMissingFolderIsThatOfItsParent) {
  EXPECT_EQ(disk_facts("/tmp/none/such/folder")["path"], "/tmp");
  EXPECT_EQ(disk_facts("/proc/version")["writable"], false) << "a file takes no run";
}

TEST(Machine, WhatCannotBeReadIsNull) {
  const auto facts = machine_facts();
  for (const char* known : {"os", "kernel", "architecture", "libc", "cpu", "memory_mib"})
    EXPECT_TRUE(facts.contains(known)) << known;
  EXPECT_TRUE(facts["memory_mib"].is_null() || facts["memory_mib"].get<int64_t>() > 0);
}

}  // namespace
}  // namespace harness
