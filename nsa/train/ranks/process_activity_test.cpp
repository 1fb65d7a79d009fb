#include "nsa/train/ranks/process_activity.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

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

void sleep_on() { std::this_thread::sleep_for(2 * kLook); }

TEST(ProcessActivity, SleepingThreadsAreNone) { EXPECT_FALSE(active_during(sleep_on)); }

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
