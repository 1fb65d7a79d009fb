#include "harness/process/file_io.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

namespace harness {
namespace {

namespace fs = std::filesystem;

fs::path scratch(const std::string& name) {
  const auto folder =
      fs::path(testing::TempDir()) / ("file_io_" + name + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

TEST(FileIo, ReplacesAtomically) {
  const auto folder = scratch("atomic");
  write_file_atomic(folder / "a", "one");
  write_file_atomic(folder / "a", "two");
  EXPECT_EQ(read_file(folder / "a"), "two");
  EXPECT_FALSE(fs::exists(folder / "a.tmp"));
}

TEST(FileIo, NeverAppendsToLeftovers) {
  const auto folder = scratch("append");
  std::ofstream(folder / "a") << "old";
  EXPECT_THROW(create_append(folder / "a"), FileError);
}

TEST(FileIo, NamesPathAndReason) {
  try {
    read_file("/nonexistent/x");
    FAIL();
  } catch (const FileError& e) {
    EXPECT_STREQ(e.what(), "cannot open /nonexistent/x: No such file or directory");
  }
}

/// A file size limit stands for the full disk; the engine's test has a real one.
TEST(FileIo, WithoutRoomTheOldContentStays) {
  const auto folder = scratch("full");
  write_file_atomic(folder / "a", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_file_atomic(folder / "a", std::string(5000, 'x'));
    } catch (const DiskFull&) {
      ::_exit(7);
    } catch (...) {
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_FALSE(fs::exists(folder / "a.tmp"));
}

}  // namespace
}  // namespace harness
