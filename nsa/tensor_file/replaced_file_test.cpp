#include "nsa/tensor_file/replaced_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <system_error>

#include "nsa/tensor_file/tensor_file.h"

namespace nsa::tensor_file {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path fresh_folder() {
  const fs::path folder = fs::path(::testing::TempDir()) / "replaced_file";
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

size_t files_in(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string write_error(const fs::path& path, const TensorFile& file) {
  try {
    write_tensor_file(path, file);
  } catch (const TensorFileError& error) {
    return error.what();
  }
  return "";
}

TensorFile some_tensor() {
  TensorFile file;
  file.tensors["x"] = from_doubles({4096}, std::vector<double>(4096, 1.0), Dtype::kF64);
  return file;
}

TEST(ReplacedFile, AppearsOnlyWhenCommitted) {
  const fs::path folder = fresh_folder(), path = folder / "out";
  std::ofstream(path) << "old";
  {
    ReplacedFile file(path);
    file.write("new", 3);
    EXPECT_EQ(text_of(path), "old");
  }
  EXPECT_EQ(text_of(path), "old");
  EXPECT_EQ(files_in(folder), 1u);
  ReplacedFile file(path);
  file.write("new", 3);
  file.commit();
  EXPECT_EQ(text_of(path), "new");
  EXPECT_EQ(files_in(folder), 1u);
}

/// A limit on the size of files stands for a full disk: the write fails in the middle.
TEST(ReplacedFile, FullDiskLeavesTheOldFileAndNothingElse) {
  const fs::path folder = fresh_folder(), path = folder / "out.safetensors";
  std::ofstream(path) << "old";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10'000;
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = write_error(path, some_tensor());
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("out.safetensors: cannot be written: File too large"));
  EXPECT_EQ(fs::file_size(path), 3u);
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(ReplacedFile, DevicesAndFoldersAreNotReplaced) {
  EXPECT_THAT(write_error("/dev/full", some_tensor()),
              HasSubstr("/dev/full: cannot be written: No space left on device"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_EQ(write_error("/dev/null", some_tensor()), "");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const fs::path folder = fresh_folder();
  EXPECT_THAT(write_error(folder, some_tensor()), HasSubstr("Is a directory"));
  EXPECT_THAT(write_error(folder / "no" / "out", some_tensor()), HasSubstr("No such file"));
}

TEST(ReplacedFile, ALinkStaysALink) {
  const fs::path folder = fresh_folder();
  fs::create_symlink("target", folder / "link");
  EXPECT_EQ(write_error(folder / "link", some_tensor()), "");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_tensor_file(folder / "target").tensors.size(), 1u);
  EXPECT_EQ(files_in(folder), 2u);
}

}  // namespace
}  // namespace nsa::tensor_file
