#pragma once
#include <nvml.h>

#include <array>

/// What the NVML of the tests answers. The library holds one, by the name `fake_nvml`.
struct FakeNvml {
  nvmlReturn_t init = NVML_SUCCESS, memory_v2 = NVML_SUCCESS, process_list = NVML_SUCCESS;
  unsigned int devices = 2;
  unsigned int lost = ~0U;  ///< index of a device that gives no handle
  int started = 0;          ///< starts that were not ended
  unsigned long long used = 0;
  unsigned int process_count = 0;
  std::array<nvmlProcessInfo_t, 4> processes = {};
  nvmlComputeMode_t compute_mode = NVML_COMPUTEMODE_DEFAULT;
  unsigned long long clock_reasons = 0;
  unsigned int nvlinks = 6;  ///< that are up; 0: the card has none
};
