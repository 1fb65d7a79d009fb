#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/kernels/common/size_limits.h"
#include "nsa/kernels/interval/interval_attention.h"

namespace nsa {

// Builds with CUDA code only.

/// x itself, or a copy a kernel can address: last axis contiguous, 16-byte aligned.
at::Tensor addressable(const at::Tensor& x);
/// q, k and v as the kernels of the branches take them: addressable, in head dims that they have
/// (head_padding.h). They must outlive the launch.
struct KernelInputs {
  KernelInputs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
  kernels::HeadDims dims;
  at::Tensor q, k, v;
};
/// x [B, S, H, D] for a kernel; the tensor must outlive the launch.
kernels::Strided strided(const at::Tensor& x);
kernels::Element element_of(const at::Tensor& x);
/// parts [rows, columns], fp32 and contiguous -> their sums over the rows, the same bits every
/// time.
at::Tensor summed_parts(const at::Tensor& parts);
/// Throws "nsa::OP: launch failed: WHY" where a launcher did not succeed.
void check_launch(cudaError_t status, const char* op);

}  // namespace nsa
