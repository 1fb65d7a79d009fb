#include "harness/process/resident_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "harness/schema/error.h"

namespace harness {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A program of a few lines of shell that plays the worker.
class Script {
 public:
  explicit Script(const std::string& body)
      : path_(testing::TempDir() + "/" + std::to_string(::getpid()) + "_worker.sh") {
    std::ofstream(path_) << "#!/bin/sh\n" << body;
    fs::permissions(path_, fs::perms::owner_all);
  }
  ~Script() { fs::remove(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(ResidentWorker, MeasuresGroupAfterGroupInOneProcess) {
  const Script script(
      "[ \"$1\" = --resident ] || exit 9\n"
      "while read -r result; do read -r line; echo \"$$ $line\" > \"$result\"; echo done; done\n");
  const fs::path first = script.path().string() + ".1", second = script.path().string() + ".2";
  {
    ResidentWorker worker(script.path(), {});
    worker.measure("one", first, 10);
    worker.measure("two", second, 10);
  }
  std::string pid, again, text;
  std::ifstream(first) >> pid >> text;
  EXPECT_EQ(text, "one");
  std::ifstream(second) >> again >> text;
  EXPECT_EQ(text, "two");
  EXPECT_EQ(again, pid);
  fs::remove(first);
  fs::remove(second);
}

TEST(ResidentWorker, ItsEndIsAnErrorInItsOwnWords) {
  const Script script("echo 'args.S must be an integer' >&2; exit 2\n");
  ResidentWorker worker(script.path(), {});
  EXPECT_THAT([&] { worker.measure("one", "/dev/null", 10); },
              ThrowsMessage<Error>(HasSubstr("args.S must be an integer")));
}

TEST(ResidentWorker, SilenceIsAnErrorAfterItsTime) {
  const Script script("exec sleep 60\n");
  ResidentWorker worker(script.path(), {});
  EXPECT_THAT([&] { worker.measure("one", "/dev/null", 0.3); },
              ThrowsMessage<Error>(HasSubstr("no answer for")));
  EXPECT_THROW(ResidentWorker(testing::TempDir() + "/no_such_program", {}), NotStarted);
}

}  // namespace
}  // namespace harness
