#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace suites {

/// Where the device's time of a forward and a backward call goes, as text: every kernel and fill
/// with its launches a call and mean time, for the target cases whose id contains `filter`. Through
/// CUPTI, so the times are a map and no results. `failed` counts
/// cases that could not run, a line each. Throws CollectorUnavailable, and std::invalid_argument
/// where no case has that in its id.
std::string profile_calls(at::Device device, const std::string& filter, uint64_t seed,
                          int64_t& failed);

}  // namespace suites
