#include "harness/provenance/build/libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/testing/paths.h"
#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::StartsWith;

/// LD_LIBRARY_PATH is the test's own while it runs.
class LibrariesTest : public testing::Test {
 protected:
  LibrariesTest() {
    if (const char* usual = std::getenv("LD_LIBRARY_PATH")) usual_ = usual;
  }
  ~LibrariesTest() override { search(usual_); }
  static void search(const std::optional<std::string>& paths) {
    if (paths)
      ::setenv("LD_LIBRARY_PATH", paths->c_str(), 1);
    else
      ::unsetenv("LD_LIBRARY_PATH");
  }
  /// Makes an empty library, or a file with `content`, below the test's folder.
  fs::path put(const std::string& path, const std::string& content = "") const {
    fs::create_directories((dir_ / path).parent_path());
    write_bytes(dir_ / path, content);
    return dir_ / path;
  }
  std::string version_of(const std::string& version_py) const {
    put("torch/lib/libtorch_cpu.so");
    put("torch/version.py", version_py);
    search((dir_ / "torch/lib").string());
    return libtorch_version();
  }
  TempDir dir_;

 private:
  std::optional<std::string> usual_;
};

TEST_F(LibrariesTest, TheFirstFolderOfTheSearchPathWins) {
  put("two/libx.so");
  const auto third = put("three/libx.so");
  const auto second = dir_ / "two/libx.so";
  const std::string one = (dir_ / "one").string(), two = (dir_ / "two").string(),
                    three = (dir_ / "three").string();
  search(one + ":" + two + ":" + three);
  EXPECT_EQ(find_library("libx.so", "x/lib"), second);
  search(three + ":" + two);
  EXPECT_EQ(find_library("libx.so", "x/lib"), third);
}

/// site-packages/torch/lib is on the path; CUDA's libraries lie in site-packages/nvidia.
TEST_F(LibrariesTest, AWheelFindsItsNeighbours) {
  fs::create_directories(dir_ / "site/torch/lib");
  const auto cupti = put("site/nvidia/cu13/lib/libcupti.so.13");
  search((dir_ / "site/torch/lib").string());
  EXPECT_EQ(find_library("libcupti.so.13", "nvidia/cu13/lib"), cupti) << "without .. in it";
  EXPECT_EQ(find_library("libcupti.so.13", "nvidia/other/lib"), std::nullopt);
}

/// An empty part means the working directory to the loader; a library there belongs to no build.
TEST_F(LibrariesTest, EmptyPartsAreNotTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  put("libhere.so");
  fs::current_path(dir_.path());
  search(":" + (dir_ / "none").string() + "::");
  const auto found = find_library("libhere.so", "x/lib");
  fs::current_path(before);
  EXPECT_EQ(found, std::nullopt);
}

TEST_F(LibrariesTest, ThenTheEnvironmentOfTheCheckout) {
  search(std::nullopt);
  const auto found = find_library("libtorch_cpu.so", "torch/lib");
  ASSERT_TRUE(found) << "tools/setup puts LibTorch there";
  EXPECT_THAT(found->string(), StartsWith(base::source_dir() + "/.venv/lib/python"));
  EXPECT_THAT(found->string(), EndsWith("/site-packages/torch/lib/libtorch_cpu.so"));
  EXPECT_EQ(find_library("libno-such.so", "torch/lib"), std::nullopt);
  const auto own = put("torch/lib/libtorch_cpu.so");
  search((dir_ / "torch/lib").string());
  EXPECT_EQ(find_library("libtorch_cpu.so", "torch/lib"), own) << "the loader would take it, too";
}

TEST_F(LibrariesTest, AVersionIsItsFirstTwoNumbers) {
  EXPECT_EQ(version_of("debug = False\n__version__ = '2.11.0+cu130'\ncuda = '13.0'\n"), "2.11");
  EXPECT_EQ(version_of("__version__ = '12.3.1'"), "12.3");
  EXPECT_EQ(version_of("__version__ = '2.11.0a0+git'\n__version__ = '3.0.0'\n"), "2.11");
}

TEST_F(LibrariesTest, AVersionThatIsNoneIsUnknown) {
  for (const char* odd : {"", "cuda = '13.0.1'", "__version__ = '2.11'", "__version__ = '2'",
                          "__version__ = '.1.2'", "__version__ = '2..1'", "__version__ = 'x.y.z'",
                          "__version__ = ''", "__version__ = '2.1rc1'"})
    EXPECT_EQ(version_of(odd), "unknown") << odd;
  fs::remove(dir_ / "torch/version.py");
  EXPECT_EQ(libtorch_version(), "unknown") << "no such file";
}

}  // namespace
}  // namespace harness
