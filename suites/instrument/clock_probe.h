#pragma once
#include <c10/core/Device.h>

#include <optional>

namespace suites {

/// SM clock of the device right now, in MHz: a one-thread kernel spins about 100 us and compares
/// clock64 (SM cycles) with globaltimer (ns). Waits for the device. Nothing on a CPU.
std::optional<double> sm_clock_mhz(at::Device device);

}  // namespace suites
