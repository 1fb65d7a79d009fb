#include "nsa/train/liveness/process_activity.h"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

namespace nsa::train {
namespace {

/// Threads that only wait wake up now and then (Gloo's every 10 ms), on a busy machine for 10 ms of
/// a second: together they take less than this of `kWindowS`. A thread that computes takes it
/// within 40 ms, and on a machine with fifty times as much to do within two seconds. The window is
/// short: what remains of the last step and these waits shall not add up to work of later.
constexpr double kActiveCpuS = 0.04, kWindowS = 2;
/// Result lines: below a page a look.
constexpr double kIdleBytes = 8192;

double clock_s(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Sum of rchar and wchar of /proc/self/io; 0 where it cannot be read.
double bytes_moved() {
  std::ifstream in("/proc/self/io");
  double sum = 0, value = 0;
  for (std::string key; in >> key >> value;)
    if (key == "rchar:" || key == "wchar:") sum += value;
  return sum;
}

/// Whether a thread is in state D. The state follows the name of the program in brackets.
bool waits_for_disk() {
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream in(thread.path() / "stat");
    std::string line;
    std::getline(in, line);
    const size_t name_end = line.rfind(')');
    if (name_end != std::string::npos && line.compare(name_end, 3, ") D") == 0) return true;
  }
  return false;
}

}  // namespace

ProcessActivity::ProcessActivity() : last_(read()), window_began_s_(last_.clock_s) {}

ProcessActivity::Counters ProcessActivity::read() {
  return {clock_s(CLOCK_MONOTONIC),
          clock_s(CLOCK_PROCESS_CPUTIME_ID) - clock_s(CLOCK_THREAD_CPUTIME_ID), bytes_moved()};
}

bool ProcessActivity::was_active() {
  const Counters now = read();
  used_cpu_s_ += now.cpu_s - last_.cpu_s;
  const bool computed = used_cpu_s_ > kActiveCpuS;
  if (computed || now.clock_s - window_began_s_ > kWindowS) {
    used_cpu_s_ = 0;
    window_began_s_ = now.clock_s;
  }
  const bool moved = now.bytes - last_.bytes > kIdleBytes;
  const bool disk = waits_for_disk();
  last_ = read();  // what this look itself has read is not counted
  return disk || computed || moved;
}

}  // namespace nsa::train
