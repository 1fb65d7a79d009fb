#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>

namespace suites {

/// Host synchronisations that LibTorch operators make on the device while `work` runs (copies to
/// the host, item(), nonzero, ...), counted by LibTorch's own synchronisation debug mode. Nothing
/// on a CPU, where there is none to make. Synchronisations that bypass LibTorch are not seen. Not
/// thread-safe: one count at a time.
std::optional<int64_t> count_host_syncs(at::Device device, const std::function<void()>& work);

}  // namespace suites
