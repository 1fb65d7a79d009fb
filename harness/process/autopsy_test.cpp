// What is known of a group that hangs: every process of it, and who was asked for its stacks.
#include "harness/process/autopsy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "harness/process/os/spawn.h"

namespace harness {
namespace {

/// The first bytes that `fd` gives within some seconds.
std::string reported_on(const Fd& fd) {
  pollfd wait{.fd = fd.get(), .events = POLLIN, .revents = 0};
  char text[256];
  if (::poll(&wait, 1, 20000) <= 0) return "nothing";
  const ssize_t n = ::read(fd.get(), text, sizeof text);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : "its end";
}

/// A program of the group `marker`; ended with the object.
class Member {
 public:
  Member(std::vector<std::string> argv, const std::string& marker)
      : child_(spawn({.argv = std::move(argv),
                      .env = {std::string(kGroupVariable) + "=" + marker},
                      .result_fd = -1})) {}
  ~Member() {
    ::kill(-child_.pid, SIGKILL);
    ::waitpid(child_.pid, nullptr, 0);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  const Child& child() const { return child_; }
  bool alive() const { return ::waitpid(child_.pid, nullptr, WNOHANG) == 0; }

 private:
  Child child_;
};

/// Prints its stacks when asked, as workers do. The shell waits without a child of its own.
const std::vector<std::string> kWithHandler = {
    "/bin/sh", "-c", "trap 'echo stacks >&2' USR1; echo ready; while :; do read x; done"};

nlohmann::json entry_of(const nlohmann::json& autopsy, pid_t pid) {
  for (const auto& one : autopsy["processes"])
    if (one["pid"] == pid) return one;
  return {};
}

TEST(Autopsy, AsksHandlersForStacksAndSparesTheRest) {
  const std::string marker = "autopsy/" + std::to_string(::getpid());
  const Member asked(kWithHandler, marker), other({"/bin/sleep", "60"}, marker),
      stranger(kWithHandler, marker + "/not");
  ASSERT_EQ(reported_on(asked.child().out), "ready\n");
  ASSERT_EQ(reported_on(stranger.child().out), "ready\n");
  const auto autopsy = take_autopsy({.marker = marker}, "HANG");
  EXPECT_EQ(autopsy["why"], "HANG");
  ASSERT_EQ(autopsy["processes"].size(), 2u) << autopsy.dump(1);
  const auto with = entry_of(autopsy, asked.child().pid),
             without = entry_of(autopsy, other.child().pid);
  EXPECT_EQ(with["host_stacks"], "asked for on standard error");
  EXPECT_EQ(reported_on(asked.child().err), "stacks\n");
  EXPECT_EQ(without["host_stacks"], "no handler for SIGUSR1: not asked");
  EXPECT_TRUE(other.alive()) << "a signal without a handler would have ended it";
  EXPECT_EQ(with["threads"].size(), 1u);
  EXPECT_EQ(without["threads"][0]["name"], "sleep");
}

TEST(Autopsy, OfNoProcessIsEmptyAndNoError) {
  const auto autopsy = take_autopsy({.marker = "autopsy/nobody"}, "TIMEOUT");
  EXPECT_EQ(autopsy["why"], "TIMEOUT");
  EXPECT_TRUE(autopsy["processes"].is_array());
  EXPECT_TRUE(autopsy["processes"].empty());
}

}  // namespace
}  // namespace harness
