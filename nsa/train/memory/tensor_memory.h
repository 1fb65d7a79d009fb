#pragma once
#include <c10/core/Device.h>

#include <optional>
#include <vector>

namespace nsa::train {

/// An allocation of tensor memory that could not be had, as it was at that moment.
struct AllocationFailure {
  double asked_mib = 0;
  double in_use_mib = 0;                 ///< by tensors of this process
  double capacity_mib = 0;               ///< what they may take at most; 0: not known
  std::vector<double> largest_mib = {};  ///< living allocations, the largest first
};

/// Counts the tensors of `device` from now on, for the rest of the process. On a CPU every
/// allocation is counted, and with a limit > 0 one beyond it fails as on a device of that size; a
/// GPU's allocator counts by itself, has no limit here, and is asked what it held when it fails.
void watch_tensor_memory(c10::Device device, double limit_mib);

/// Largest memory of tensors, in MiB, since the last reset_tensor_peak, by the bytes they asked
/// for; 0 where none is counted.
double tensor_peak_mib(c10::Device device);
void reset_tensor_peak(c10::Device device);

/// The last failure since watch_tensor_memory; empty: there was none.
std::optional<AllocationFailure> last_allocation_failure();

}  // namespace nsa::train
