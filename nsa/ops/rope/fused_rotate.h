#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// Whether the kernel rotates x: 16-bit [B, S, H, D] on CUDA, D a multiple of 8 up to 1024.
bool rotates_by_kernel(const at::Tensor& x);

/// rope(x, positions, base) in one launch, angles in fp64, one rounding; differentiable once in x.
/// positions int64 [S] or [B, S]. Only where rotates_by_kernel(x).
at::Tensor rotate_by_kernel(const at::Tensor& x, const at::Tensor& positions, double base);

}  // namespace nsa
