// Launching a kernel and its dynamic shared memory, on a device or in the emulator.
#pragma once
#include <cuda_runtime.h>

#ifdef NSA_EMULATED
#include "nsa/kernels/tests/emulator/launch.h"
#endif

namespace nsa::kernels::portable {}
namespace nsa::kernels::sm80 {
using namespace portable;
}

namespace nsa::kernels::portable {

/// The block's dynamic shared memory.
__device__ __forceinline__ char* dynamic_shared() {
#ifdef NSA_EMULATED
  return emulator::shared_memory();
#else
  extern __shared__ __align__(128) char shared[];
  return shared;
#endif
}

/// The same as a name of the kernel's own: of some kernels the compiler makes other code if they
/// get the address from a function, or as that of another type.
#ifdef NSA_EMULATED
#define NSA_DYNAMIC_SHARED(Type, name) \
  Type* const name = reinterpret_cast<Type*>(nsa::kernels::emulator::shared_memory())
#else
#define NSA_DYNAMIC_SHARED(Type, name) extern __shared__ __align__(128) Type name[]
#endif

/// More a block of threads may have only where it is asked for.
constexpr size_t kSharedBytesOfAny = 48 * 1024;

template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, const Arguments&... arguments) {
#ifdef NSA_EMULATED
  (void)stream;
  return emulator::run_kernel(kernel, grid, block, shared_bytes,
                              std::tuple<Parameters...>(arguments...));
#else
  if (shared_bytes > kSharedBytesOfAny) {
    const cudaError_t status = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (status != cudaSuccess) return status;
  }
  // Unlike <<<>>> it returns the launch's own status: an error that others left stays theirs.
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
#endif
}

/// With attributes, of which the emulator knows none.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const cudaLaunchConfig_t& config,
                   const Arguments&... arguments) {
#ifdef NSA_EMULATED
  return emulator::run_kernel(kernel, config.gridDim, config.blockDim, config.dynamicSmemBytes,
                              std::tuple<Parameters...>(arguments...));
#else
  return cudaLaunchKernelEx(&config, kernel, arguments...);
#endif
}

}  // namespace nsa::kernels::portable
