#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "nsa/model/blocks/residual_norm.h"

namespace nsa {

/// residual_norm and rounded_linear behind it: `sum`, and y = norm of it times the rows of
/// `weights`, one below the other. Where both have kernels the norm is not kept: the pass that
/// makes the gradient of its input computes it again, with the same bits, for the gradients of
/// `weights`. `range` names the NVTX range of the product. `look` is shown the norm, which is kept
/// then.
struct NormedLinear {
  at::Tensor sum, y;
};
NormedLinear normed_linear(const Residual& in, const at::Tensor& norm_weight, double eps,
                           const std::vector<at::Tensor>& weights, const char* range,
                           const std::function<void(const at::Tensor& normed)>& look = {});

}  // namespace nsa
