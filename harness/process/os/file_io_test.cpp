#include "harness/process/os/file_io.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <limits>

#include "harness/schema/error.h"

namespace harness {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(FileIo, NeverAppendsToLeftovers) {
  const auto path = fs::path(testing::TempDir()) / ("file_io_" + std::to_string(::getpid()));
  std::ofstream(path) << "old";
  EXPECT_EQ(text_of([&] { create_append(path); }),
            "cannot create " + path.string() + ": File exists");
  fs::remove(path);
  EXPECT_TRUE(create_append(path));
}

TEST(FileIo, NamesTheRemedyWhenThereIsNoRoom) {
  EXPECT_EQ(text_of([] { throw_file_error("/x", "write", ENOSPC); }),
            "cannot write /x: No space left on device; make room and continue with --resume");
  EXPECT_EQ(text_of([] { throw_file_error("/x", "write", EIO); }),
            "cannot write /x: Input/output error");
}

TEST(FileIo, KnowsFreeSpace) {
  EXPECT_GT(free_bytes(testing::TempDir()), 0u);
  EXPECT_EQ(free_bytes("/nonexistent"), std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace harness
