#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "nsa/core/stack_dump.h"
#include "suites/instrument/clock_probe.h"
#include "suites/instrument/event_timer.h"
#include "suites/instrument/facts.h"
#include "suites/instrument/host_syncs.h"

namespace suites {
namespace {

const at::Device kCpu(at::kCPU);

TEST(EventTimer, MeasuresMilliseconds) {
  EventTimer timer(kCpu);
  timer.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double ms = timer.stop_ms();
  EXPECT_GE(ms, 20);
  EXPECT_LT(ms, 2000);
}

TEST(EventTimer, CallsPerSampleReachTheMinimum) {
  EventTimer timer(kCpu);
  int64_t calls = 0;
  const auto work = [&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  };
  const int64_t per_sample = calls_per_sample(timer, work, 3);
  EXPECT_GE(per_sample, 2);
  EXPECT_LE(per_sample, 8);
  EXPECT_EQ(calls_per_sample(timer, work, 1e9, 4), 4);
  EXPECT_GE(time_calls_ms(timer, work, 4), 0.5);
  EXPECT_THROW(time_calls_ms(timer, work, 0), c10::Error);
}

TEST(OnACpu, ThereIsNoClockAndNoSynchronisation) {
  EXPECT_EQ(sm_clock_mhz(kCpu), std::nullopt);
  bool ran = false;
  EXPECT_EQ(count_host_syncs(kCpu, [&] { ran = true; }), std::nullopt);
  EXPECT_TRUE(ran);
}

TEST(Facts, VersionsNameMemory) {
  const auto versions = library_versions(kCpu);
  EXPECT_THAT(versions.at("torch"), testing::HasSubstr("2."));
  EXPECT_THAT(versions.at("compiler"), testing::HasSubstr("gcc"));
  EXPECT_FALSE(device_name(kCpu).empty());
  EXPECT_GT(peak_memory_mib(kCpu), 1);
  EXPECT_LT(peak_memory_mib(kCpu), 100000);
}

TEST(Facts, DeviceNamesAreChecked) {
  EXPECT_EQ(parse_device("cpu"), kCpu);
  try {
    parse_device("tpu");
    FAIL() << "accepted";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                testing::HasSubstr("must be cpu, cuda or cuda:N, got 'tpu'"));
  }
}

TEST(StackDump, ShowsEveryThreadAndTheProcessGoesOn) {
  nsa::install_stack_dump();
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  testing::internal::CaptureStderr();
  kill(getpid(), SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const std::string text = testing::internal::GetCapturedStderr();
  stop = true;
  other.join();
  size_t threads = 0;
  for (size_t at = text.find("== thread "); at != std::string::npos;
       at = text.find("== thread ", at + 1))
    ++threads;
  EXPECT_GE(threads, 2u) << text;
  EXPECT_THAT(text, testing::HasSubstr("== end of stacks =="));
}

}  // namespace
}  // namespace suites
