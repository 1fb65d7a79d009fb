#include "suites/instrument/clock_events.h"

#include <array>
#include <utility>

#ifdef NSA_WITH_CUDA
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvml.h>

#include <map>
#endif

namespace suites {
namespace {

/// Bits of nvmlDeviceGetCurrentClocksEventReasons that mean a clock lower than asked for.
constexpr auto kReasons = std::to_array<std::pair<uint64_t, const char*>>({
    {0x04, "sw_power_cap"},
    {0x08, "hw_slowdown"},
    {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake"},
});

#ifdef NSA_WITH_CUDA

template <class Function>
Function* find(void* library, const char* name) {
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

/// The one function of NVML that is asked again and again; opened once, never closed.
class ClockEventReader {
 public:
  ClockEventReader() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto init = find<decltype(nvmlInit_v2)>(library_, "nvmlInit_v2");
    if (init == nullptr || init() != NVML_SUCCESS) return;
    by_bus_ = find<decltype(nvmlDeviceGetHandleByPciBusId_v2)>(library_,
                                                               "nvmlDeviceGetHandleByPciBusId_v2");
    // The older name is that of drivers before 535.
    reasons_ = find<decltype(nvmlDeviceGetCurrentClocksEventReasons)>(
        library_, "nvmlDeviceGetCurrentClocksEventReasons");
    if (reasons_ == nullptr)
      reasons_ = find<decltype(nvmlDeviceGetCurrentClocksEventReasons)>(
          library_, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }

  std::string read(int index) {
    nvmlDevice_t device{};
    unsigned long long reasons = 0;
    if (reasons_ == nullptr || !open(index, device) || reasons_(device, &reasons) != NVML_SUCCESS)
      return "";
    return clock_event_names(reasons);
  }

 private:
  bool open(int index, nvmlDevice_t& device) {
    if (const auto known = devices_.find(index); known != devices_.end()) {
      device = known->second;
      return true;
    }
    char bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE] = {};
    if (by_bus_ == nullptr || cudaDeviceGetPCIBusId(bus, sizeof bus, index) != cudaSuccess ||
        by_bus_(bus, &device) != NVML_SUCCESS)
      return false;
    devices_[index] = device;
    return true;
  }

  void* library_;
  decltype(&nvmlDeviceGetHandleByPciBusId_v2) by_bus_ = nullptr;
  decltype(&nvmlDeviceGetCurrentClocksEventReasons) reasons_ = nullptr;
  std::map<int, nvmlDevice_t> devices_;  ///< the handle of a device stays valid
};

#endif

}  // namespace

std::string clock_event_names(uint64_t reasons) {
  std::string names;
  for (const auto& [bit, name] : kReasons)
    if ((reasons & bit) != 0) names += (names.empty() ? "" : ",") + std::string(name);
  return names.empty() ? "none" : names;
}

std::string clock_events(at::Device device) {
#ifdef NSA_WITH_CUDA
  if (!device.is_cuda()) return "";
  static ClockEventReader reader;
  return reader.read(device.has_index() ? device.index() : 0);
#else
  static_cast<void>(device);
  return "";
#endif
}

}  // namespace suites
