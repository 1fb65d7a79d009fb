#pragma once
#include <c10/core/Device.h>

namespace nsa::train {

/// Memory in use, in MiB: allocated by LibTorch on a GPU, the resident set of this process on a
/// CPU.
double used_memory_mib(c10::Device device);

/// Its peak since the process started, or, on a GPU, since reset_peak_memory.
double peak_memory_mib(c10::Device device);

/// That of the bytes asked for, without what a GPU's allocator rounds them up by; on a CPU as
/// peak_memory_mib.
double peak_requested_mib(c10::Device device);

/// Starts a new peak on a GPU; the peak of a process' resident set cannot be reset.
void reset_peak_memory(c10::Device device);

}  // namespace nsa::train
