#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "nsa/kernels/interval/interval_attention.h"

namespace nsa {

/// Empty where q, k, v [B, ., H, D] may go to a kernel of this build that wants `least_major`
/// compute capability (`only` true: exactly that one); else why not.
std::string kernel_obstacle(const at::Tensor& q, int least_major, bool only);

/// Least major compute capability of kernels that need mma.sync and cp.async and no more.
inline constexpr int kPortableMajor = 8;

// Builds with CUDA code only.

/// x itself, or a copy a kernel can address: last axis contiguous, 16-byte aligned.
at::Tensor addressable(const at::Tensor& x);
/// x [B, S, H, D] for a kernel; the tensor must outlive the launch.
kernels::Strided strided(const at::Tensor& x);
kernels::Element element_of(const at::Tensor& x);
/// parts [rows, columns], fp32 and contiguous -> their sums over the rows, the same bits every
/// time.
at::Tensor summed_parts(const at::Tensor& parts);
/// Throws "nsa::OP: launch failed: WHY" where a launcher did not succeed.
void check_launch(cudaError_t status, const char* op);

}  // namespace nsa
