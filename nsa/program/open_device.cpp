#include "nsa/program/open_device.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>

#include "nsa/program/input_error.h"

namespace nsa {

at::Device open_device(const std::string& name) {
  at::Device device = at::kCPU;
  try {
    device = at::Device(name);
  } catch (const c10::Error&) {
    throw InputError("device must be cpu, cuda or cuda:N, got \"" + name + "\"");
  }
  if (device.is_cpu()) return at::kCPU;
  const int64_t count = device.is_cuda() && at::hasCUDA() ? at::accelerator::deviceCount() : 0;
  const int64_t index = device.has_index() ? device.index() : 0;
  if (index >= count)
    throw InputError(
        "device \"" + name + "\" is not there: this program sees " + std::to_string(count) +
        " CUDA devices; use --device cpu, or a build with CUDA on a machine with a GPU");
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);  // the allocator answers only then
  at::accelerator::setDeviceIndex(static_cast<c10::DeviceIndex>(index));
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace nsa
