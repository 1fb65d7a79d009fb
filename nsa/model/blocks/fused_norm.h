#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// The kernels of residual_norm, outside of autograd. Whether they take `x` and `added` (which may
/// be undefined).
bool norms_by_kernel(const at::Tensor& x, const at::Tensor& added);

struct FusedNorm {
  at::Tensor sum, out, scale;  ///< x + added, its norm, 1 / sqrt(mean + eps) of every row
};
/// x, added (or undefined) and the fp32 weight contiguous; the sum is x where nothing is added.
FusedNorm norm_by_kernel(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight,
                         double eps);

struct FusedNormGradients {
  at::Tensor x, weight;  ///< that of `added` is that of x; fp32
};
/// From the gradients of the norm and, where defined, of the sum. With `again` the norm is computed
/// once more, with the bits it had, into the place of d_out.
FusedNormGradients norm_backward_by_kernel(const at::Tensor& sum, const at::Tensor& weight,
                                           const at::Tensor& scale, const at::Tensor& d_out,
                                           const at::Tensor& d_sum, bool again);

}  // namespace nsa
