#include "suites/eval/tensors.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace suites::eval {
namespace {

constexpr std::array<std::pair<Dtype, at::ScalarType>, 8> kTypes = {
    {{Dtype::kF64, at::kDouble},
     {Dtype::kF32, at::kFloat},
     {Dtype::kF16, at::kHalf},
     {Dtype::kBF16, at::kBFloat16},
     {Dtype::kF8E4M3, at::kFloat8_e4m3fn},
     {Dtype::kF8E5M2, at::kFloat8_e5m2},
     {Dtype::kI64, at::kLong},
     {Dtype::kI32, at::kInt}}};

at::ScalarType scalar_type(Dtype dtype) {
  for (const auto& [file, aten] : kTypes)
    if (file == dtype) return aten;
  throw std::logic_error("file type without a tensor type");
}

Dtype file_type(at::ScalarType type) {
  for (const auto& [file, aten] : kTypes)
    if (aten == type) return file;
  throw std::logic_error("tensor type without a file type");
}

at::Tensor copy_of(const FileTensor& tensor) {
  at::Tensor copy = at::empty(tensor.shape, scalar_type(tensor.dtype));
  if (!tensor.bytes.empty())
    std::memcpy(copy.mutable_data_ptr(), tensor.bytes.data(), tensor.bytes.size());
  return copy;
}

}  // namespace

at::Tensor to_aten(const FileTensor& tensor, at::ScalarType dtype, at::Device device) {
  // LibTorch rounds double to a 16-bit type by way of float, so twice.
  const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  if (narrow && tensor.dtype == Dtype::kF64)
    return copy_of(from_doubles(tensor.shape, to_doubles(tensor), file_type(dtype))).to(device);
  return copy_of(tensor).to(dtype).to(device);
}

FileTensor from_aten(const at::Tensor& tensor) {
  const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
  FileTensor file{file_type(host.scalar_type()), host.sizes().vec(),
                  std::vector<std::byte>(host.nbytes())};
  if (!file.bytes.empty()) std::memcpy(file.bytes.data(), host.const_data_ptr(), file.bytes.size());
  return file;
}

}  // namespace suites::eval
