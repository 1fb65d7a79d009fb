// Functions of the CUDA runtime that launchers call, where kernels are emulated.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "nsa/kernels/tests/emulator/card.h"
#include "nsa/kernels/tests/emulator/emulator.h"
#include "nsa/kernels/tests/emulator/sm90/tensor_map.h"

namespace nsa::kernels::emulator {
namespace {
Card card = Card::kA100;
}
void set_card(Card chosen) { card = chosen; }
size_t most_shared_bytes() { return card == Card::kH100 ? 232448 : 163840; }
}  // namespace nsa::kernels::emulator
using nsa::kernels::emulator::card, nsa::kernels::emulator::Card;

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
extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const int most_shared = static_cast<int>(nsa::kernels::emulator::most_shared_bytes());
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 3;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = card == Card::kH100 ? 9 : 8;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = most_shared;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = most_shared + (card == Card::kH100 ? 1024 : 4096);
      return cudaSuccess;
    default:
      return cudaErrorInvalidValue;
  }
}
extern "C" cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  const bool too_much = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize &&
                        value > static_cast<int>(nsa::kernels::emulator::most_shared_bytes());
  return too_much ? cudaErrorInvalidValue : cudaSuccess;
}
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                        unsigned, unsigned long long,
                                                        cudaDriverEntryPointQueryResult* found) {
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&nsa::kernels::emulator::encode_tiled) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
extern "C" const char* cudaGetErrorString(cudaError_t) { return "an error"; }
extern "C" cudaError_t cudaGetLastError() { return cudaSuccess; }
