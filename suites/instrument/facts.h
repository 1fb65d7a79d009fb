#pragma once
#include <c10/core/Device.h>

#include <map>
#include <string>

namespace suites {

/// Library -> version of what this program runs with: torch, compiler, and on CUDA cuda_runtime and
/// cuda_driver.
std::map<std::string, std::string> library_versions(at::Device device);

/// Name of the processor or of the card, e.g. "NVIDIA H200".
std::string device_name(at::Device device);

/// Bytes of the cache before a GPU's memory (L2); 0 on a CPU, where none is asked for.
int64_t cache_bytes(at::Device device);

/// "cpu", "cuda" or "cuda:N" as a device that exists. Throws c10::Error naming the value and the
/// remedy.
at::Device parse_device(const std::string& text);

/// Peak memory in MiB: resident set of the process on a CPU, allocated by LibTorch's allocator on
/// CUDA (since the start or the last reset_peak_memory).
double peak_memory_mib(at::Device device);
void reset_peak_memory(at::Device device);
/// Waits for the device and gives back what LibTorch's allocator keeps of it for later. Nothing on
/// a CPU. Throws c10::Error where the device reports an error.
void release_memory(at::Device device);

}  // namespace suites
