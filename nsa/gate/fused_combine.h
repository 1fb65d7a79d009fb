#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// Whether the kernel adds the branches: 16-bit o_cmp on CUDA, fp32 gates, dv a multiple of 8.
bool combines_by_kernel(const at::Tensor& o_cmp, const at::Tensor& gates);

/// gate_combine(o_cmp, o_sel, o_win, gates) in one launch, one for the backward; differentiable
/// once in all. Only where combines_by_kernel.
at::Tensor combine_by_kernel(const at::Tensor& o_cmp, const at::Tensor& o_sel,
                             const at::Tensor& o_win, const at::Tensor& gates);

}  // namespace nsa
