#include "harness/process/os/capped_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "harness/evidence/storage/files.h"
#include "harness/evidence/storage/temp_dir.h"
#include "harness/schema/error.h"

namespace harness {
namespace {

using testing::HasSubstr;

std::string cut(uint64_t cap) {
  return "\n[log cut here: the cap of " + std::to_string(cap) + " bytes is reached]\n";
}

class CappedLogTest : public testing::Test {
 protected:
  /// The log of a pipe that the test writes into, as a worker would.
  CappedLog log(uint64_t cap) {
    Pipe pipe = make_pipe();
    set_nonblocking(pipe.read.get());
    worker_ = std::move(pipe.write);
    return CappedLog(std::move(pipe.read), dir_ / "out.log", cap);
  }
  void write_line(const std::string& text) const {
    ASSERT_EQ(::write(worker_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string file() const { return read_bytes(dir_ / "out.log"); }

  TempDir dir_;
  Fd worker_;
};

TEST_F(CappedLogTest, BytesArriveAsTheyAre) {
  CappedLog log = this->log(100);
  EXPECT_EQ(log.drain(), 0u) << "nothing written yet, and no waiting";
  const std::string odd("no newline\0\r\x1b[1m\xff", 16);
  write_line(odd);
  EXPECT_EQ(log.drain(), odd.size());
  write_line("\nmore");
  EXPECT_EQ(log.drain(), 5u);
  EXPECT_EQ(file(), odd + "\nmore");
  EXPECT_EQ(log.bytes(), odd.size() + 5);
  EXPECT_FALSE(log.truncated());
}

TEST_F(CappedLogTest, TheEndOfTheStreamIsSeenOnce) {
  CappedLog log = this->log(100);
  write_line("last");
  worker_.reset();
  EXPECT_GE(log.fd(), 0);
  EXPECT_EQ(log.drain(), 4u);
  EXPECT_EQ(log.fd(), -1);
  EXPECT_EQ(log.drain(), 0u);
  EXPECT_EQ(file(), "last");
}

TEST_F(CappedLogTest, AFullLogReportsSoOnceAndOnlyCounts) {
  CappedLog log = this->log(10);
  write_line("0123456789");
  log.drain();
  EXPECT_EQ(file(), "0123456789") << "the cap itself still fits";
  EXPECT_FALSE(log.truncated());
  write_line("x");
  log.drain();
  EXPECT_TRUE(log.truncated());
  write_line("yz");
  EXPECT_EQ(log.drain(), 2u) << "or the worker would stop at a full pipe";
  EXPECT_EQ(file(), "0123456789" + cut(10));
  EXPECT_EQ(log.bytes(), 13u);
}

TEST_F(CappedLogTest, ABlockOverTheCapIsKeptUpToIt) {
  CappedLog log = this->log(10);
  write_line("01234");
  log.drain();
  write_line("56789abc");
  log.drain();
  EXPECT_EQ(file(), "0123456789" + cut(10));
  EXPECT_EQ(log.bytes(), 13u);
}

/// A stream that never ends must not keep the watch: a call takes some MiB and returns.
TEST_F(CappedLogTest, AFloodIsReadInParts) {
  const std::string flood(9 << 20, 'f');
  write_bytes(dir_ / "flood", flood);
  CappedLog log(Fd(::open((dir_ / "flood").c_str(), O_RDONLY | O_CLOEXEC)), dir_ / "out.log",
                1 << 20);
  uint64_t taken = 0;
  int parts = 0;
  for (; log.fd() >= 0; ++parts) {
    const uint64_t now = log.drain();
    EXPECT_LT(now, flood.size() / 2);
    taken += now;
  }
  EXPECT_GE(parts, 2);
  EXPECT_EQ(taken, flood.size());
  EXPECT_EQ(log.bytes(), flood.size());
  EXPECT_EQ(file(), flood.substr(0, 1 << 20) + cut(1 << 20));
}

TEST_F(CappedLogTest, LeftoversAreNotWrittenOver) {
  write_bytes(dir_ / "out.log", "old");
  EXPECT_THROW(log(10), Error);
  EXPECT_EQ(file(), "old");
}

TEST_F(CappedLogTest, AFileThatTakesNoMoreIsAnErrorWithItsPath) {
  CappedLog log = this->log(100);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = usual;
  small.rlim_cur = 4;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  write_line("0123456789");
  std::string problem = "none";
  try {
    log.drain();
  } catch (const Error& e) {
    problem = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &usual);
  ::signal(SIGXFSZ, handler);
  EXPECT_THAT(problem, HasSubstr("cannot write " + (dir_ / "out.log").string()));
  EXPECT_THAT(problem, HasSubstr("--resume"));
}

TEST(CappedLog, OfNoStreamReportsNothing) {
  CappedLog none;
  EXPECT_EQ(none.fd(), -1);
  EXPECT_EQ(none.drain(), 0u);
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_FALSE(none.truncated());
}

}  // namespace
}  // namespace harness
