#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

/// Torch-free launcher of the clock probe, shared by the kernel file and its caller.
namespace suites {

/// readings [2]: SM cycles and ns that passed while one thread spun for `spin_ns`. Device memory.
cudaError_t clock_probe_launch(int64_t* readings, int64_t spin_ns, cudaStream_t stream);

}  // namespace suites
