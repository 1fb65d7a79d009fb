#include "nsa/train/memory/memory.h"

#include <ATen/DeviceAccelerator.h>

#include <fstream>
#include <string>

#include "nsa/train/memory/mib.h"

namespace nsa::train {
namespace {

/// A line "KEY:   1234 kB" of /proc/self/status, in MiB.
double process_status_mib(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::stod(line.substr(key.size() + 1)) / 1024.0;
  return 0;
}

c10::CachingAllocator::Stat allocated(c10::Device device) {
  const auto stats = at::accelerator::getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace

double used_memory_mib(c10::Device device) {
  return device.is_cpu() ? process_status_mib("VmRSS")
                         : static_cast<double>(allocated(device).current) / kMib;
}

double peak_memory_mib(c10::Device device) {
  return device.is_cpu() ? process_status_mib("VmHWM")
                         : static_cast<double>(allocated(device).peak) / kMib;
}

void reset_peak_memory(c10::Device device) {
  if (!device.is_cpu()) at::accelerator::resetPeakStats(device.index());
}

}  // namespace nsa::train
