#include "harness/provenance/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/provenance/build/libraries.h"
#include "harness/provenance/capture.h"
#include "harness/provenance/machine.h"
#include "harness/schema/write.h"

namespace harness {
namespace {

namespace fs = std::filesystem;

TEST(Environment, NamesMachineAndRun) {
  const nlohmann::json env =
      environment({.command_line = {"nsa-validate", "list"}, .seed = 7, .out = "/tmp"});
  EXPECT_NE(env["machine"]["kernel"], "");
  EXPECT_TRUE(env["machine"]["cpu"]["model"].is_string());
  EXPECT_GT(env["machine"]["memory_mib"], 0);
  EXPECT_GT(env["disk"]["total_mib"], 0);
  EXPECT_EQ(env["seed"], 7);
  EXPECT_EQ(env["command_line"][1], "list");
  EXPECT_TRUE(env["gpu"]["count"] > 0 || env["gpu"]["problem"] != "");
  EXPECT_TRUE(env["build"]["check"].contains("equal"));
}

TEST(Environment, TheContentOfConfigsIsRecorded) {
  TempDir dir;
  fs::create_directories(dir / "runbooks");
  write_bytes(dir / "runbooks/one.json", "1");
  write_bytes(dir / "hardware.json", "2");
  const auto configs = [&] { return environment({.configs = dir.path()})["configs"]; };
  const nlohmann::json before = configs();
  EXPECT_EQ(before["files"], 2);
  const Captured by_hand =
      capture({"sh", "-c",
               "cd '" + dir.path().string() +
                   "' && find * -type f | LC_ALL=C sort | xargs sha256sum | sha256sum"});
  EXPECT_EQ(by_hand.out.substr(0, 64), before["sha256"].get<std::string>());
  write_bytes(dir / "runbooks/two.json.part", "of a killed writer");
  EXPECT_EQ(configs(), before);
  write_bytes(dir / "runbooks/one.json", "3");
  EXPECT_NE(configs()["sha256"], before["sha256"]);
  EXPECT_TRUE(environment()["configs"].is_null());
}

TEST(Environment, OnlyListedVariablesEnter) {
  setenv("NCCL_ALGO", "Ring", 1);
  setenv("NSA_SEL_RANGES_V2", "1", 1);
  setenv("CUDA_API_TOKEN", "hush", 1);
  setenv("HOME_SECRET", "hush", 1);
  const std::string text = canonical_dump(environment_variables());
  EXPECT_THAT(text, testing::HasSubstr(R"("NCCL_ALGO":"Ring")"));
  EXPECT_THAT(text, testing::HasSubstr(R"("NSA_SEL_RANGES_V2":"1")"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("hush")));
  EXPECT_FALSE(is_recorded_variable("PATH"));
}

TEST(Environment, BytesThatAreNotTextDoNotStopIt) {
  setenv("NCCL_DEBUG", "\xff\x1b[31m|`<script>", 1);
  const nlohmann::json env = environment();
  EXPECT_TRUE(nlohmann::json::accept(pretty_dump(env)));
  unsetenv("NCCL_DEBUG");
}

TEST(Facts, DataIsThereOnlyWithItsManifest) {
  TempDir dir;
  fs::create_directories(dir / "whole");
  fs::create_directories(dir / "half");
  write_bytes(dir / "whole/manifest.json", "{}");
  const auto known = facts(dir.path());
  EXPECT_EQ(known.at("data.whole"), true);
  EXPECT_FALSE(known.contains("data.half"));
}

TEST(Facts, GpuFactsAgreeWithTheirCount) {
  const auto known = facts();
  EXPECT_EQ(known.at("gpu.count") > 0, known.contains("gpu.cc"));
  EXPECT_EQ(known.at("gpu.count") > 0, known.contains("gpu.exclusive"));
  EXPECT_TRUE(known.contains("git.checkout"));
  EXPECT_TRUE(known.contains("program.nsa-worker"));
}

TEST(Libraries, SearchPathThenNothing) {
  TempDir dir;
  write_bytes(dir / "libinvented.so", "");
  EXPECT_EQ(find_library("libinvented.so", "nowhere"), std::nullopt);
  setenv("LD_LIBRARY_PATH", ("/none:" + dir.path().string()).c_str(), 1);
  EXPECT_EQ(find_library("libinvented.so", "nowhere"), dir / "libinvented.so");
  fs::create_directories(dir / "torch/lib");
  fs::create_directories(dir / "vendor/lib");
  write_bytes(dir / "vendor/lib/libother.so", "");
  setenv("LD_LIBRARY_PATH", (dir / "torch/lib").c_str(), 1);
  EXPECT_EQ(find_library("libother.so", "vendor/lib"), dir / "vendor/lib/libother.so");
  EXPECT_EQ(find_library("libother.so", "nowhere"), std::nullopt);
  unsetenv("LD_LIBRARY_PATH");
}

TEST(Disk, NearestExistingFolderIsAsked) {
  EXPECT_GT(disk_facts("/tmp/not/there/yet")["total_mib"], 0);
  EXPECT_EQ(disk_facts("/proc/self/none")["writable"], false);
}

}  // namespace
}  // namespace harness
