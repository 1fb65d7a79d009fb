#pragma once
#include <ATen/core/Tensor.h>

#include "suites/reference_cases/tensor_files.h"

namespace suites::eval {

/// A tensor of a file as `dtype` on `device`: every element rounded once, to nearest even.
at::Tensor to_aten(const FileTensor& tensor, at::ScalarType dtype, at::Device device);

/// fp64, fp32, fp16, bf16, fp8, int64 and int32 tensors from any device. Throws std::logic_error
/// for another type.
FileTensor from_aten(const at::Tensor& tensor);

}  // namespace suites::eval
