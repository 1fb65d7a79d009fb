#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "nsa/diagnostics/nvtx_range.h"
#include "nsa/diagnostics/stack_dump.h"
#include "suites/instrument/cache_flush.h"
#include "suites/instrument/clock_events.h"
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
  int64_t most = 0;  // a busy machine may let one call last longer than a sample
  for (int attempt = 0; attempt < 20 && most < 2; ++attempt) {
    const int64_t per_sample = calls_per_sample(timer, work, 3);
    EXPECT_LE(per_sample, 8);
    most = std::max(most, per_sample);
  }
  EXPECT_GE(most, 2);
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

TEST(OnACpu, HasNoClockEventsAndNoColdCalls) {
  EXPECT_EQ(clock_events(kCpu), "");
  CacheFlush flush(kCpu);
  EXPECT_FALSE(flush.available());
  EXPECT_THROW(flush(), c10::Error);
}

TEST(ClockEvents, NamesThoseThatLowerTheClock) {
  EXPECT_EQ(clock_event_names(0), "none");
  EXPECT_EQ(clock_event_names(0x1 | 0x2), "none") << "idle, and a clock that was chosen";
  EXPECT_EQ(clock_event_names(0x4), "sw_power_cap");
  EXPECT_EQ(clock_event_names(0x1 | 0x4 | 0x40), "sw_power_cap,hw_thermal_slowdown");
}

std::filesystem::path stage_file() {
  return std::filesystem::path(testing::TempDir()) / ("stages." + std::to_string(getpid()));
}

/// The slots of a record that hold text, without their thread ids.
std::vector<std::string> stages_in(const std::filesystem::path& file) {
  std::ostringstream bytes;
  bytes << std::ifstream(file, std::ios::binary).rdbuf();
  const std::string all = bytes.str();
  std::vector<std::string> found;
  for (size_t at = 0; at < all.size(); at += nsa::StageRecord::kSlotBytes) {
    const std::string text = all.c_str() + at;
    if (!text.empty()) found.push_back(text.substr(text.find(": ") + 2));
  }
  return found;
}

TEST(StageRecord, HoldsOpenStagesAndTheLastOneLeft) {
  using testing::ElementsAre;
  const auto file = stage_file();
  {
    const nsa::StageRecord record(file);
    EXPECT_EQ(std::filesystem::file_size(file), 4096u);
    const nsa::NvtxRange step("train.step");
    EXPECT_THAT(stages_in(file), ElementsAre("train.step"));
    {
      const nsa::NvtxRange forward("train.forward");
      const nsa::NvtxRange gate("nsa.gate");
      EXPECT_THAT(stages_in(file), ElementsAre("train.step > train.forward > nsa.gate"));
    }
    EXPECT_THAT(stages_in(file), ElementsAre("train.step ; train.forward ; nsa.gate"));
    const nsa::NvtxRange backward("train.backward");
    EXPECT_THAT(stages_in(file), ElementsAre("train.step > train.backward"));
    std::thread([] { const nsa::NvtxRange other("nsa.select"); }).join();
    EXPECT_THAT(stages_in(file), ElementsAre("train.step > train.backward", "nsa.select"));
  }
  EXPECT_FALSE(std::filesystem::exists(file)) << "a process that ends well needs none";
  const nsa::NvtxRange none("not.recorded");
}

TEST(StageRecord, TakesMoreThreadsAndDeeperStagesThanItHolds) {
  const nsa::StageRecord record(stage_file());
  for (int i = 0; i < 3 * nsa::StageRecord::kThreads; ++i)
    std::thread([] {
      std::vector<std::unique_ptr<nsa::NvtxRange>> ranges;
      for (int depth = 0; depth < 40; ++depth)
        ranges.push_back(std::make_unique<nsa::NvtxRange>("a.stage.with.a.rather.long.name"));
      while (!ranges.empty()) ranges.pop_back();
    }).join();
  const auto found = stages_in(stage_file());
  EXPECT_EQ(found.size(), static_cast<size_t>(nsa::StageRecord::kThreads));
  for (const std::string& text : found) EXPECT_LT(text.size(), 256u);
}

TEST(StageRecord, OutlivesKillNine) {
  const auto file = stage_file();
  const pid_t child = fork();
  if (child == 0) {
    const nsa::StageRecord record(file);
    const nsa::NvtxRange step("train.step");
    const nsa::NvtxRange select("nsa.select");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(stages_in(file), testing::ElementsAre("train.step > nsa.select"));
  std::filesystem::remove(file);
}

TEST(StageRecord, ReportsAnUnwritableFile) {
  try {
    const nsa::StageRecord record("/nonexistent/stages");
    FAIL() << "accepted";
  } catch (const std::system_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cannot write /nonexistent/stages: No such file"));
  }
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
