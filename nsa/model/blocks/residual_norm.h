#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

namespace nsa {

/// A residual stream x + added; `added` undefined: x alone. The addition is left to the norm that
/// reads it, which does both in one pass.
struct Residual {
  at::Tensor x, added;  ///< [..., D]
  at::Tensor sum() const { return added.defined() ? x + added : x; }
};

/// sum = x + added, rounded to the type of x, and its RMSNorm over the last axis, accumulated in
/// fp32: sum / sqrt(mean(sum^2) + eps) * weight. weight [D], rounded to the type of x; its gradient
/// is summed in the accumulation type. On CUDA one kernel forward and two backward for bf16 and
/// fp16 where D is a multiple of 8 up to 1024, the plain operators elsewhere.
struct NormedResidual {
  at::Tensor sum, normed;
};
NormedResidual residual_norm(const Residual& in, const at::Tensor& weight, double eps);

/// RMSNorm of x alone.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace nsa
