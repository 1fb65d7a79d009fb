#include "nsa/train/liveness/process_activity.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

namespace nsa::train {
namespace {

constexpr auto kLook = std::chrono::milliseconds(300);

/// Whether this process was active while another thread did `work`.
bool active_during(const std::function<void()>& work) {
  ProcessActivity activity;
  std::thread other(work);
  std::this_thread::sleep_for(kLook);
  const bool active = activity.was_active();
  other.join();
  return active;
}

int64_t thread_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void sleep_on() { std::this_thread::sleep_for(2 * kLook); }

TEST(ProcessActivity, SleepingThreadsAreNone) { EXPECT_FALSE(active_during(sleep_on)); }

/// Those of a machine with many processors; looking at them reads more than a page.
TEST(ProcessActivity, ManySleepingThreadsAreNone) {
  std::vector<std::jthread> others;
  for (int i = 0; i < 100; ++i) others.emplace_back([] { std::this_thread::sleep_for(4 * kLook); });
  std::this_thread::sleep_for(kLook);
  ProcessActivity activity;
  for (int look = 0; look < 4; ++look) {
    std::this_thread::sleep_for(kLook / 4);
    EXPECT_FALSE(activity.was_active()) << "look " << look;
  }
}

/// Threads that wait for others wake up and look.
TEST(ProcessActivity, ThreadsThatWakeUpShortlyAreNone) {
  ProcessActivity activity;
  std::jthread waiting([] {
    for (int i = 0; i < 6; ++i) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
      while (std::chrono::steady_clock::now() < end) {
      }
      std::this_thread::sleep_for(kLook);
    }
  });
  for (int look = 0; look < 6; ++look) {
    std::this_thread::sleep_for(kLook);
    EXPECT_FALSE(activity.was_active()) << "look " << look;
  }
}

/// The rest of a step, too short to be noticed, is not added to what happens seconds later.
TEST(ProcessActivity, ShortWorkDoesNotAddUp) {
  ProcessActivity activity;
  std::jthread other([] {
    for (int i = 0; i < 3; ++i) {
      const int64_t begin = thread_cpu_ms();
      while (thread_cpu_ms() < begin + 34) {
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2300));
    }
  });
  for (int look = 0; look < 120; ++look) {  // often: some between two windows and the next work
    std::this_thread::sleep_for(kLook / 6);
    EXPECT_FALSE(activity.was_active()) << "look " << look;
  }
}

TEST(ProcessActivity, ComputingIsOne) {
  EXPECT_TRUE(active_during([] {
    const auto end = std::chrono::steady_clock::now() + 2 * kLook;
    while (std::chrono::steady_clock::now() < end) {
    }
  }));
}

TEST(ProcessActivity, ReadingIsOne) {
  EXPECT_TRUE(active_during([] {
    std::ifstream zeros("/dev/zero", std::ios::binary);
    std::string bytes(size_t{1} << 16, ' ');
    zeros.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    sleep_on();
  }));
}

/// A parent of vfork is in an uninterruptible wait until the child ends.
TEST(ProcessActivity, AWaitForADiskIsOne) {
  EXPECT_TRUE(active_during([] {
    const pid_t child = vfork();  // NOLINT: the child calls nothing but what is allowed to it
    if (child == 0) {
      usleep(2 * 300 * 1000);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }));
}

}  // namespace
}  // namespace nsa::train
