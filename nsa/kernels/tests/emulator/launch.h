#pragma once
#include <tuple>

#include "nsa/kernels/tests/emulator/emulator.h"

namespace nsa::kernels::emulator {

/// What `launch` of sm80/launch.cuh does here. Every thread has its own copy of the parameters.
template <typename... Parameters>
cudaError_t run_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                       const std::tuple<Parameters...>& parameters) {
  struct Call {
    void (*kernel)(Parameters...);
    const std::tuple<Parameters...>& parameters;
  };
  const Call call{kernel, parameters};
  run_grid(
      grid, block, shared_bytes,
      [](const void* context) {
        const Call& own = *static_cast<const Call*>(context);
        std::apply(own.kernel, own.parameters);
      },
      &call);
  return cudaSuccess;
}

}  // namespace nsa::kernels::emulator

/// As nvcc has it.
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
