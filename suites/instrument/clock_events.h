#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace suites {

/// Why the clock of the device is low right now, by NVML's names with commas between them: "none",
/// or e.g. "sw_power_cap,hw_thermal_slowdown". An idle device and a clock set by a user do not
/// count. Empty where nothing is known: on a CPU, and without libnvidia-ml.so.1. Costs tens of
/// microseconds on the host and nothing on the device.
std::string clock_events(at::Device device);

/// The names of NVML's bit mask of clock event reasons; "none" when it holds none that counts.
std::string clock_event_names(uint64_t reasons);

}  // namespace suites
