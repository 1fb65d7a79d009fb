#include <dlfcn.h>
#include <nvml.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "harness/provenance/gpu/gpu.h"

namespace harness {
namespace {

/// The opened library. Every call is looked up by name, so that an older driver lacks single facts,
/// not all.
class Nvml {
 public:
  explicit Nvml(const std::string& library)
      : handle_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  ~Nvml() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }

  /// Calls the function `name` (of the type of `signature`); NVML_ERROR_FUNCTION_NOT_FOUND when the
  /// library lacks it.
  template <class... Parameters, class... Arguments>
  nvmlReturn_t call(nvmlReturn_t (*)(Parameters...), const char* name,
                    Arguments... arguments) const {
    const auto function = reinterpret_cast<nvmlReturn_t (*)(Parameters...)>(dlsym(handle_, name));
    return function == nullptr ? NVML_ERROR_FUNCTION_NOT_FOUND : function(arguments...);
  }

 private:
  void* handle_;
};

// The function's own declaration gives the type; nothing links against it (decltype is
// unevaluated).
#define NSA_NVML(nvml, function, ...) \
  (nvml).call(static_cast<decltype(&function)>(nullptr), #function __VA_OPT__(, ) __VA_ARGS__)
#define NSA_NVML_NAMED(nvml, function, symbol, ...) \
  (nvml).call(static_cast<decltype(&function)>(nullptr), symbol __VA_OPT__(, ) __VA_ARGS__)

constexpr int64_t kMib = 1 << 20;

/// By reference: the value is read after the call that fills it, whatever the order of evaluation.
std::optional<int64_t> when_ok(nvmlReturn_t status, const unsigned int& value) {
  return status == NVML_SUCCESS ? std::optional<int64_t>(value) : std::nullopt;
}

std::string compute_mode(const Nvml& nvml, nvmlDevice_t device) {
  nvmlComputeMode_t mode{};
  if (NSA_NVML(nvml, nvmlDeviceGetComputeMode, device, &mode) != NVML_SUCCESS) return "";
  switch (mode) {
    case NVML_COMPUTEMODE_DEFAULT:
      return "default";
    case NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
      return "exclusive process";
    case NVML_COMPUTEMODE_PROHIBITED:
      return "prohibited";
    default:
      return "other";
  }
}

void read_memory(const Nvml& nvml, nvmlDevice_t device, GpuFacts& gpu) {
  nvmlMemory_v2_t memory{};
  memory.version = nvmlMemory_v2;
  if (NSA_NVML(nvml, nvmlDeviceGetMemoryInfo_v2, device, &memory) == NVML_SUCCESS) {
    gpu.memory_total_mib = static_cast<int64_t>(memory.total) / kMib;
    gpu.memory_free_mib = static_cast<int64_t>(memory.free) / kMib;
    gpu.memory_used_mib = static_cast<int64_t>(memory.used) / kMib;
    return;
  }
  nvmlMemory_t old{};
  if (NSA_NVML(nvml, nvmlDeviceGetMemoryInfo, device, &old) != NVML_SUCCESS) return;
  gpu.memory_total_mib = static_cast<int64_t>(old.total) / kMib;
  gpu.memory_free_mib = static_cast<int64_t>(old.free) / kMib;
  gpu.memory_used_mib = static_cast<int64_t>(old.used) / kMib;
}

void read_processes(const Nvml& nvml, nvmlDevice_t device, GpuFacts& gpu) {
  std::array<nvmlProcessInfo_t, 128> infos{};
  unsigned int count = infos.size();
  const nvmlReturn_t status =
      NSA_NVML_NAMED(nvml, nvmlDeviceGetComputeRunningProcesses,
                     "nvmlDeviceGetComputeRunningProcesses_v3", device, &count, infos.data());
  if (status != NVML_SUCCESS) {
    gpu.processes_problem = "NVML gives no process list (status " + std::to_string(status) +
                            "); fallback: used memory of the device";
    return;
  }
  for (unsigned int i = 0; i < count; ++i) {
    GpuProcess process{.pid = infos[i].pid, .mib = std::nullopt, .name = ""};
    if (infos[i].usedGpuMemory != static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE))
      process.mib = static_cast<int64_t>(infos[i].usedGpuMemory) / kMib;
    std::getline(std::ifstream("/proc/" + std::to_string(process.pid) + "/comm"), process.name);
    gpu.processes.push_back(process);
  }
  if (count == 0 && gpu.memory_used_mib > GpuFacts::kIdleMib)
    gpu.processes_problem =
        "memory is held and no process is visible; fallback: used memory of the device";
}

void read_switches(const Nvml& nvml, nvmlDevice_t device, GpuFacts& gpu) {
  nvmlEnableState_t now{}, pending{};
  if (NSA_NVML(nvml, nvmlDeviceGetEccMode, device, &now, &pending) == NVML_SUCCESS)
    gpu.ecc = now == NVML_FEATURE_ENABLED;
  if (NSA_NVML(nvml, nvmlDeviceGetPersistenceMode, device, &now) == NVML_SUCCESS)
    gpu.persistence = now == NVML_FEATURE_ENABLED;
  unsigned int mig = 0, mig_pending = 0;
  if (NSA_NVML(nvml, nvmlDeviceGetMigMode, device, &mig, &mig_pending) == NVML_SUCCESS)
    gpu.mig = mig != 0;
}

void read_health(const Nvml& nvml, nvmlDevice_t device, GpuFacts& gpu) {
  unsigned long long count = 0, reasons = 0;
  if (NSA_NVML(nvml, nvmlDeviceGetTotalEccErrors, device, NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
               NVML_VOLATILE_ECC, &count) == NVML_SUCCESS)
    gpu.ecc_uncorrected = static_cast<int64_t>(count);
  if (NSA_NVML(nvml, nvmlDeviceGetCurrentClocksEventReasons, device, &reasons) == NVML_SUCCESS)
    gpu.throttle_bits = static_cast<int64_t>(
        reasons & ~static_cast<unsigned long long>(nvmlClocksEventReasonGpuIdle |
                                                   nvmlClocksEventReasonApplicationsClocksSetting));
}

/// A card without NVLink supports none of them.
void read_links(const Nvml& nvml, nvmlDevice_t device, GpuFacts& gpu) {
  for (unsigned int link = 0; link < NVML_NVLINK_MAX_LINKS; ++link) {
    nvmlEnableState_t state{};
    const nvmlReturn_t status = NSA_NVML(nvml, nvmlDeviceGetNvLinkState, device, link, &state);
    if (status == NVML_ERROR_FUNCTION_NOT_FOUND) return;
    const bool up = status == NVML_SUCCESS && state == NVML_FEATURE_ENABLED;
    gpu.nvlinks = gpu.nvlinks.value_or(0) + (up ? 1 : 0);
  }
}

void read_rates(const Nvml& nvml, nvmlDevice_t device, GpuFacts& gpu) {
  unsigned int value = 0;
  gpu.sm_clock_mhz =
      when_ok(NSA_NVML(nvml, nvmlDeviceGetClockInfo, device, NVML_CLOCK_SM, &value), value);
  gpu.memory_clock_mhz =
      when_ok(NSA_NVML(nvml, nvmlDeviceGetClockInfo, device, NVML_CLOCK_MEM, &value), value);
  gpu.max_sm_clock_mhz =
      when_ok(NSA_NVML(nvml, nvmlDeviceGetMaxClockInfo, device, NVML_CLOCK_SM, &value), value);
  gpu.power_limit_w =
      when_ok(NSA_NVML(nvml, nvmlDeviceGetPowerManagementLimit, device, &value), value);
  if (gpu.power_limit_w) *gpu.power_limit_w /= 1000;  // NVML reports milliwatts
  gpu.pcie_gen =
      when_ok(NSA_NVML(nvml, nvmlDeviceGetCurrPcieLinkGeneration, device, &value), value);
  gpu.pcie_width = when_ok(NSA_NVML(nvml, nvmlDeviceGetCurrPcieLinkWidth, device, &value), value);
  gpu.max_pcie_gen =
      when_ok(NSA_NVML(nvml, nvmlDeviceGetMaxPcieLinkGeneration, device, &value), value);
  gpu.max_pcie_width =
      when_ok(NSA_NVML(nvml, nvmlDeviceGetMaxPcieLinkWidth, device, &value), value);
  read_links(nvml, device, gpu);
  read_health(nvml, device, gpu);
  nvmlTemperature_t temperature{
      .version = nvmlTemperature_v1, .sensorType = NVML_TEMPERATURE_GPU, .temperature = 0};
  if (NSA_NVML(nvml, nvmlDeviceGetTemperatureV, device, &temperature) == NVML_SUCCESS)
    gpu.temperature_c = temperature.temperature;
}

GpuFacts read_gpu(const Nvml& nvml, nvmlDevice_t device, unsigned int index) {
  GpuFacts gpu;
  gpu.index = index;
  std::array<char, NVML_DEVICE_NAME_V2_BUFFER_SIZE> text{};
  if (NSA_NVML(nvml, nvmlDeviceGetName, device, text.data(), text.size()) == NVML_SUCCESS)
    gpu.name = text.data();
  if (NSA_NVML(nvml, nvmlDeviceGetUUID, device, text.data(), text.size()) == NVML_SUCCESS)
    gpu.uuid = text.data();
  if (NSA_NVML(nvml, nvmlDeviceGetVbiosVersion, device, text.data(), text.size()) == NVML_SUCCESS)
    gpu.vbios = text.data();
  int major = 0, minor = 0;
  if (NSA_NVML(nvml, nvmlDeviceGetCudaComputeCapability, device, &major, &minor) == NVML_SUCCESS)
    gpu.cc = std::to_string(major) + "." + std::to_string(minor);
  gpu.compute_mode = compute_mode(nvml, device);
  read_memory(nvml, device, gpu);
  read_processes(nvml, device, gpu);
  read_switches(nvml, device, gpu);
  read_rates(nvml, device, gpu);
  return gpu;
}

void read_versions(const Nvml& nvml, GpuList& list) {
  std::array<char, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE> text{};
  if (NSA_NVML(nvml, nvmlSystemGetDriverVersion, text.data(), text.size()) == NVML_SUCCESS)
    list.driver = text.data();
  int cuda = 0;
  if (NSA_NVML(nvml, nvmlSystemGetCudaDriverVersion_v2, &cuda) == NVML_SUCCESS)
    list.cuda = std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

}  // namespace

GpuList list_gpus(const std::string& library) {
  GpuList list;
  const Nvml nvml(library);
  if (!nvml) {
    list.problem = library + " cannot be opened: no NVIDIA driver on this machine";
    return list;
  }
  const nvmlReturn_t status = NSA_NVML_NAMED(nvml, nvmlInit, "nvmlInit_v2");
  if (status != NVML_SUCCESS) {
    list.problem =
        "NVML does not start (status " + std::to_string(status) + "): the driver answers no device";
    return list;
  }
  list.nvml = true;
  read_versions(nvml, list);
  unsigned int count = 0;
  NSA_NVML_NAMED(nvml, nvmlDeviceGetCount, "nvmlDeviceGetCount_v2", &count);
  for (unsigned int i = 0; i < count; ++i) {
    nvmlDevice_t device{};
    if (NSA_NVML_NAMED(nvml, nvmlDeviceGetHandleByIndex, "nvmlDeviceGetHandleByIndex_v2", i,
                       &device) == NVML_SUCCESS)
      list.gpus.push_back(read_gpu(nvml, device, i));
  }
  NSA_NVML(nvml, nvmlShutdown);
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return list;
  list.visible = visible;
  list.gpus = visible_gpus(std::move(list.gpus), list.visible);
  if (list.gpus.empty())
    list.problem = "CUDA_VISIBLE_DEVICES=" + list.visible + " shows no GPU of this machine";
  return list;
}

}  // namespace harness
