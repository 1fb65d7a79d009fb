#include "harness/process/os/proc_scan.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "harness/process/os/spawn.h"

namespace harness {
namespace {

/// A process of its own session that sleeps, with the marker of a group in its environment.
Child sleeper(const std::string& marker) {
  return spawn({.argv = {"/bin/sleep", "60"},
                .env = {"A=b", std::string(kGroupVariable) + "=" + marker},
                .result_fd = -1});
}

TEST(ProcScan, ThisProcessIsRead) {
  const auto stat = read_stat(::getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->ppid, ::getppid());
  EXPECT_EQ(stat->session, ::getsid(0));
  EXPECT_GT(stat->start_ticks, 0U);
  EXPECT_FALSE(read_stat(1 << 30));
}

TEST(ProcScan, ANameMayHoldAnything) {
  ::prctl(PR_SET_NAME, ") R 1 (x");
  const auto stat = read_stat(::getpid());
  ::prctl(PR_SET_NAME, "process_test");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->name, ") R 1 (x");
  EXPECT_EQ(stat->ppid, ::getppid());
}

TEST(ProcScan, GroupsAreFoundBySessionAndByMarker) {
  const std::string marker = "scan/" + std::to_string(::getpid());
  const Child child = sleeper(marker + "/one");
  const auto pids = [](const GroupKey& key) {
    std::vector<pid_t> found;
    for (const auto& member : find_group(key)) found.push_back(member.pid);
    return found;
  };
  const std::vector<pid_t> only = {child.pid};
  EXPECT_EQ(pids({.session = child.pid, .marker = ""}), only);
  EXPECT_EQ(pids({.marker = marker + "/one"}), only);
  EXPECT_EQ(pids({.marker = marker, .prefix = true}), only);
  EXPECT_TRUE(pids({.marker = marker}).empty()) << "a part of a marker is another group";
  EXPECT_TRUE(pids({}).empty()) << "no key is no group, not everything";
  EXPECT_TRUE(pids({.session = child.pid, .marker = "", .not_before = UINT64_MAX}).empty());
  EXPECT_TRUE(kill_group({.marker = marker + "/one"}, 5).empty());
  ::waitpid(child.pid, nullptr, 0);
}

TEST(ProcScan, OnlyHandlersCatchASignal) {
  EXPECT_FALSE(catches_signal(::getpid(), SIGUSR2));
  ::signal(SIGUSR2, [](int) {});
  EXPECT_TRUE(catches_signal(::getpid(), SIGUSR2));
  ::signal(SIGUSR2, SIG_IGN);
  EXPECT_FALSE(catches_signal(::getpid(), SIGUSR2));
  ::signal(SIGUSR2, SIG_DFL);
  EXPECT_FALSE(catches_signal(1 << 30, SIGUSR2));
}

TEST(ProcScan, AnAutopsyHasEveryThread) {
  const auto facts = describe_process(::getpid());
  EXPECT_EQ(facts["pid"], ::getpid());
  EXPECT_FALSE(facts["threads"].empty());
  EXPECT_EQ(describe_process(1 << 30)["threads"].size(), 0U) << "gone, and no error";
}

TEST(ProcScan, SignalsHaveNames) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(99), "signal 99");
}

}  // namespace
}  // namespace harness
