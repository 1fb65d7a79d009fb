#include "harness/process/os/fd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "harness/schema/error.h"

namespace harness {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }
int fresh() { return ::open("/dev/null", O_RDWR | O_CLOEXEC); }

/// Descriptors of this process, with the one that is open while they are counted.
int64_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

TEST(Fd, ClosesWhatItOwns) {
  const int raw = fresh();
  {
    const Fd fd(raw);
    EXPECT_TRUE(fd);
    EXPECT_EQ(fd.get(), raw);
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(Fd, NoneIsNoDescriptor) {
  const Fd none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), -1);
  EXPECT_TRUE(Fd(0)) << "standard input is a descriptor";
  EXPECT_EQ(::open("/dev/null", O_RDONLY), 0) << "the line above closed it";
}

TEST(Fd, ResetClosesOnce) {
  const int raw = fresh();
  Fd fd(raw);
  fd.reset();
  EXPECT_FALSE(fd);
  EXPECT_FALSE(is_open(raw));
  ASSERT_EQ(::dup2(1, raw), raw);  // somebody else gets the number
  fd.reset();
  EXPECT_TRUE(is_open(raw));
  ::close(raw);
}

TEST(Fd, AMoveLeavesOneOwner) {
  const int raw = fresh(), old = fresh();
  Fd target(old);
  {
    Fd source(raw);
    Fd moved(std::move(source));
    EXPECT_FALSE(source);
    EXPECT_EQ(moved.get(), raw);
    target = std::move(moved);
  }
  EXPECT_EQ(target.get(), raw);
  EXPECT_TRUE(is_open(raw));
  EXPECT_FALSE(is_open(old)) << "what it owned before is closed with the source";
}

TEST(Pipe, CarriesBytesAndEnds) {
  Pipe pipe = make_pipe();
  ASSERT_EQ(::write(pipe.write.get(), "abc", 3), 3);
  char got[8] = {};
  EXPECT_EQ(::read(pipe.read.get(), got, sizeof got), 3);
  EXPECT_STREQ(got, "abc");
  pipe.write.reset();
  EXPECT_EQ(::read(pipe.read.get(), got, sizeof got), 0) << "another copy of the end is open";
}

TEST(Pipe, IsOutOfTheWayOfAChildAndEndsAtExec) {
  const int64_t before = open_descriptors();
  {
    const Pipe pipe = make_pipe();
    EXPECT_EQ(open_descriptors(), before + 2);
    for (const Fd* end : {&pipe.read, &pipe.write}) {
      EXPECT_GE(end->get(), 10);
      EXPECT_EQ(::fcntl(end->get(), F_GETFD), FD_CLOEXEC);
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Pipe, ReportsWhatToDoWhereNoDescriptorIsLeft) {
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  for (const rlim_t most : {rlim_t{1}, rlim_t{10}}) {  // neither is there, or not above 9
    const int64_t before = open_descriptors();
    rlimit few = usual;
    few.rlim_cur = most;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::string problem = "none";
    try {
      make_pipe();
    } catch (const Error& e) {
      problem = e.what();
    }
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
    EXPECT_THAT(problem, testing::StartsWith("pipe: "));
    EXPECT_THAT(problem, testing::EndsWith("; raise the limit of open files"));
    EXPECT_EQ(open_descriptors(), before) << "an end was lost";
  }
}

TEST(Nonblocking, AnEmptyPipeDoesNotWaitAndOtherFlagsStay) {
  const Pipe pipe = make_pipe();
  ASSERT_EQ(::fcntl(pipe.read.get(), F_SETFL, O_ASYNC), 0);
  set_nonblocking(pipe.read.get());
  char got = 0;
  EXPECT_EQ(::read(pipe.read.get(), &got, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(::fcntl(pipe.read.get(), F_GETFL) & O_ASYNC);
  EXPECT_FALSE(::fcntl(pipe.write.get(), F_GETFL) & O_NONBLOCK);
}

}  // namespace
}  // namespace harness
