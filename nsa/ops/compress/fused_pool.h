#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// Whether the kernel pools x: 16-bit [B, S, H, D] on CUDA, D a multiple of 8.
bool pools_by_kernel(const at::Tensor& x);

/// pool_mean(x, l, d) rounded to the type of x, in one launch; differentiable once in x. S >= l.
/// Only where pools_by_kernel(x).
at::Tensor pool_mean_by_kernel(const at::Tensor& x, int64_t block_size, int64_t block_stride);

}  // namespace nsa
