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

using Stats = c10::CachingDeviceAllocator::DeviceStats;

c10::CachingAllocator::Stat total_of(c10::CachingAllocator::StatArray Stats::* bytes,
                                     c10::Device device) {
  const Stats stats = at::accelerator::getDeviceStats(device.index());
  return (stats.*bytes)[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

double peak_mib(c10::CachingAllocator::StatArray Stats::* bytes, c10::Device device) {
  return device.is_cpu() ? process_status_mib("VmHWM")
                         : static_cast<double>(total_of(bytes, device).peak) / kMib;
}

}  // namespace

double used_memory_mib(c10::Device device) {
  return device.is_cpu()
             ? process_status_mib("VmRSS")
             : static_cast<double>(total_of(&Stats::allocated_bytes, device).current) / kMib;
}

double peak_memory_mib(c10::Device device) { return peak_mib(&Stats::allocated_bytes, device); }

double peak_requested_mib(c10::Device device) { return peak_mib(&Stats::requested_bytes, device); }

void reset_peak_memory(c10::Device device) {
  if (!device.is_cpu()) at::accelerator::resetPeakStats(device.index());
}

}  // namespace nsa::train
