#include "base/files/whole_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

namespace base {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WholeFile : public testing::Test {
 protected:
  WholeFile()
      : dir_(fs::path(testing::TempDir()) / ("base_whole_file_" + std::to_string(::getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~WholeFile() override { fs::remove_all(dir_); }

  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  /// The code of the error; its text in `text`.
  static int refusal(const fs::path& path, std::string& text) {
    try {
      write_whole_file(path, "new");
    } catch (const FileError& error) {
      text = error.what();
      return error.code();
    }
    return 0;
  }

  const fs::path dir_;
};

TEST_F(WholeFile, ReplacesTheOldOneAndLeavesNoPart) {
  write_whole_file(dir_ / "f", "long content");
  write_whole_file(dir_ / "f", std::string("n\0w", 3));
  EXPECT_EQ(text_of(dir_ / "f"), std::string("n\0w", 3));
  EXPECT_FALSE(fs::exists(dir_ / "f.part"));
}

TEST_F(WholeFile, ReplacesALinkAndKeepsItsTarget) {
  write_whole_file(dir_ / "other", "old");
  fs::create_symlink(dir_ / "other", dir_ / "f");
  write_whole_file(dir_ / "f", "new");
  EXPECT_FALSE(fs::is_symlink(dir_ / "f"));
  EXPECT_EQ(text_of(dir_ / "other"), "old");
}

TEST_F(WholeFile, NamesPathAndReason) {
  std::string text;
  EXPECT_EQ(refusal(dir_ / "no/f", text), ENOENT);
  EXPECT_EQ(text, "cannot create " + (dir_ / "no/f.part").string() + ": No such file or directory");
  fs::create_directories(dir_ / "folder");
  EXPECT_EQ(refusal(dir_ / "folder", text), EISDIR);
  EXPECT_THAT(text, HasSubstr("cannot replace " + (dir_ / "folder").string()));
  EXPECT_FALSE(fs::exists(dir_ / "folder.part"));
}

TEST_F(WholeFile, WritesToAPipeAndLeavesItThere) {
  const fs::path pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  write_whole_file(pipe, "new");
  std::string read(8, '\0');
  read.resize(static_cast<size_t>(std::max<ssize_t>(0, ::read(reader, read.data(), read.size()))));
  ::close(reader);
  EXPECT_EQ(read, "new");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(WholeFile, KeepsTheOldOneWhereTheDiskIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this machine";
  write_whole_file(dir_ / "f", "old");
  fs::create_symlink("/dev/full", dir_ / "f.part");
  std::string text;
  EXPECT_EQ(refusal(dir_ / "f", text), ENOSPC);
  EXPECT_EQ(text_of(dir_ / "f"), "old");
  EXPECT_FALSE(fs::is_symlink(dir_ / "f.part"));
}

TEST(WholeFileNames, NameTheFileThatIsHalfThere) {
  EXPECT_EQ(whole_of("ledger.jsonl.part"), "ledger.jsonl");
  EXPECT_EQ(whole_of("a/b.part.part"), "a/b.part");
  for (const char* whole : {"", "part", "x.parts", "x.part/y"}) EXPECT_EQ(whole_of(whole), "");
}

}  // namespace
}  // namespace base
