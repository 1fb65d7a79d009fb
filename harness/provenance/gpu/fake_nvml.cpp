/// An NVML without a driver, for tests: two GPUs whose facts all differ from each other. With
/// FAKE_NVML_OLD it lacks functions, as the library of an older driver does.
#include "harness/provenance/gpu/fake_nvml.h"

#include <cstdint>
#include <cstdio>

extern "C" {

FakeNvml fake_nvml;
}

namespace {

/// A handle is the index plus one: 0 is no handle.
unsigned int index_of(nvmlDevice_t device) {
  return static_cast<unsigned int>(reinterpret_cast<uintptr_t>(device) - 1);
}

nvmlReturn_t text(char* out, unsigned int size, const char* value, unsigned int index) {
  const int needed = std::snprintf(out, size, "%s%u", value, index);
  return needed < static_cast<int>(size) ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t number(unsigned int* out, unsigned int value) {
  *out = value;
  return NVML_SUCCESS;
}

constexpr unsigned long long kMib = 1 << 20;

}  // namespace

extern "C" {

nvmlReturn_t nvmlInit_v2() {
  if (fake_nvml.init == NVML_SUCCESS) ++fake_nvml.started;
  return fake_nvml.init;
}
nvmlReturn_t nvmlShutdown() {
  --fake_nvml.started;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count) { return number(count, fake_nvml.devices); }
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device) {
  if (index == fake_nvml.lost) return NVML_ERROR_GPU_IS_LOST;
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<uintptr_t>(index + 1));  // NOLINT: a name
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlSystemGetDriverVersion(char* out, unsigned int size) {
  return text(out, size, "580.65.0", 6);
}
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13020;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* out, unsigned int size) {
  return text(out, size, "Fake ", index_of(device));
}
nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* out, unsigned int size) {
  return text(out, size, "GPU-f", index_of(device));
}
nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  *major = 9;
  *minor = static_cast<int>(index_of(device));
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t, nvmlMemory_t* memory) {
  memory->total = 1000 * kMib;
  memory->free = 1000 * kMib - fake_nvml.used;
  memory->used = fake_nvml.used;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned int* clock) {
  return number(clock, type == NVML_CLOCK_SM ? 1500 : type == NVML_CLOCK_MEM ? 2600 : 1);
}

#ifndef FAKE_NVML_OLD
nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char* out, unsigned int size) {
  return text(out, size, "96.0", index_of(device));
}
nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t, nvmlComputeMode_t* mode) {
  *mode = fake_nvml.compute_mode;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t, nvmlMemory_v2_t* memory) {
  if (memory->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  if (fake_nvml.memory_v2 != NVML_SUCCESS) return fake_nvml.memory_v2;
  memory->total = 2000 * kMib;
  memory->reserved = 100 * kMib;
  memory->free = 1900 * kMib - fake_nvml.used;
  memory->used = fake_nvml.used;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t, unsigned int* count,
                                                     nvmlProcessInfo_t* infos) {
  if (fake_nvml.process_list != NVML_SUCCESS) return fake_nvml.process_list;
  if (*count < fake_nvml.process_count) return NVML_ERROR_INSUFFICIENT_SIZE;
  *count = fake_nvml.process_count;
  for (unsigned int i = 0; i < *count; ++i) infos[i] = fake_nvml.processes[i];
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t, nvmlEnableState_t* now,
                                  nvmlEnableState_t* pending) {
  *now = NVML_FEATURE_ENABLED;
  *pending = NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t, nvmlEnableState_t* mode) {
  *mode = NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t, unsigned int* now, unsigned int* pending) {
  number(pending, 1);
  return number(now, 0);
}
nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long* count) {
  const bool asked = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED && counter == NVML_VOLATILE_ECC;
  *count = asked ? 3 : 77;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t, unsigned long long* reasons) {
  *reasons = fake_nvml.clock_reasons;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t, nvmlClockType_t type, unsigned int* clock) {
  return number(clock, type == NVML_CLOCK_SM ? 1980 : 1);
}
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t, unsigned int* limit) {
  return number(limit, 700000);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t, unsigned int* value) {
  return number(value, 4);
}
nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t, unsigned int* value) {
  return number(value, 8);
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t, unsigned int* value) {
  return number(value, 5);
}
nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t, unsigned int* value) {
  return number(value, 16);
}
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t, unsigned int link, nvmlEnableState_t* state) {
  if (fake_nvml.nvlinks == 0) return NVML_ERROR_NOT_SUPPORTED;
  *state = link < fake_nvml.nvlinks ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t, nvmlTemperature_t* temperature) {
  if (temperature->version != nvmlTemperature_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  temperature->temperature = 41;
  return NVML_SUCCESS;
}
#endif

}  // extern "C"
