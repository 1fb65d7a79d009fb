// Functions of the CUDA runtime that launchers call, where kernels are emulated.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "nsa/device/emulator/emulator.h"

extern "C" cudaError_t cudaMalloc(void** to, size_t bytes) {
  *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *to == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
extern "C" cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
extern "C" cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
extern "C" cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
extern "C" cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cudaSuccess;
}
extern "C" cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
/// An A100 of three multiprocessors: grids that depend on their number have CTAs with more than one
/// item.
extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 3;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = nsa::device::emulator::kMostSharedBytes;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = nsa::device::emulator::kMostSharedBytes + 4096;
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}
extern "C" cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
extern "C" const char* cudaGetErrorString(cudaError_t) { return "an error"; }
extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }
