#include "suites/instrument/facts.h"

#include <c10/util/Exception.h>
#include <torch/version.h>

#include <fstream>

#ifdef NSA_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#endif

namespace suites {
namespace {

/// Text behind "KEY...: " in a /proc file; empty when the key is not there.
std::string proc_value(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t colon = line.find(':');
    const size_t text = line.find_first_not_of(" \t", colon + 1);
    if (colon != std::string::npos && text != std::string::npos) return line.substr(text);
  }
  return "";
}

#ifdef NSA_WITH_CUDA
/// 13000 -> "13.0".
std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}
#endif

}  // namespace

std::map<std::string, std::string> library_versions(at::Device device) {
  std::map<std::string, std::string> versions = {{"torch", TORCH_VERSION},
                                                 {"compiler", "gcc " __VERSION__}};
#ifdef NSA_WITH_CUDA
  if (device.is_cuda()) {
    int runtime = 0, driver = 0;
    C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
    versions["cuda_runtime"] = cuda_version(runtime);
    versions["cuda_driver"] = cuda_version(driver);
  }
#else
  static_cast<void>(device);
#endif
  return versions;
}

std::string device_name(at::Device device) {
#ifdef NSA_WITH_CUDA
  if (device.is_cuda()) {
    cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device.has_index() ? device.index() : 0));
    return properties.name;
  }
#endif
  static_cast<void>(device);
  const std::string name = proc_value("/proc/cpuinfo", "model name");
  return name.empty() ? "cpu" : name;
}

int64_t cache_bytes(at::Device device) {
#ifdef NSA_WITH_CUDA
  if (device.is_cuda()) {
    int bytes = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize,
                                          device.has_index() ? device.index() : 0));
    return bytes;
  }
#endif
  static_cast<void>(device);
  return 0;
}

at::Device parse_device(const std::string& text) {
  const bool known = text == "cpu" || text == "cuda" || text.rfind("cuda:", 0) == 0;
  TORCH_CHECK(known, "suites::parse_device: device must be cpu, cuda or cuda:N, got '", text, "'");
  at::Device device(text);
  if (device.is_cpu()) return device;
#ifdef NSA_WITH_CUDA
  const int count = c10::cuda::device_count();
  TORCH_CHECK(count > 0, "suites::parse_device: device '", text,
              "' needs a GPU and this machine shows none; use cpu");
  if (!device.has_index()) device.set_index(0);
  TORCH_CHECK(device.index() < count, "suites::parse_device: device must be below cuda:", count,
              ", got '", text, "'");
  return device;
#else
  TORCH_CHECK(false, "suites::parse_device: device '", text,
              "' needs a build with NSA_ENABLE_CUDA; this one has none");
#endif
}

double peak_memory_mib(at::Device device) {
#ifdef NSA_WITH_CUDA
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return static_cast<double>(stats.allocated_bytes[all].peak) / (1 << 20);
  }
#endif
  static_cast<void>(device);
  const std::string kib = proc_value("/proc/self/status", "VmHWM");
  return kib.empty() ? 0 : std::stod(kib) / 1024;
}

void reset_peak_memory(at::Device device) {
#ifdef NSA_WITH_CUDA
  if (device.is_cuda()) return c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
#endif
  static_cast<void>(device);
  std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM
}

void release_memory(at::Device device) {
#ifdef NSA_WITH_CUDA
  if (!device.is_cuda()) return;
  c10::cuda::device_synchronize();
  c10::cuda::CUDACachingAllocator::emptyCache();
#else
  static_cast<void>(device);
#endif
}

}  // namespace suites
