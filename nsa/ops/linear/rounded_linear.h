#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/ops/linear/rounded_weights.h"

namespace nsa {

/// Whether rounded_linear keeps the gradient of these weights wide.
bool keeps_gradients_wide(const at::Tensor& x, const std::vector<at::Tensor>& weights);

/// x W^T for the rows of several matrices, one below the other, rounded to the type of x: x
/// [..., in], weights [out_i, in] of a type of their own -> [..., sum of out_i]. On CUDA with bf16
/// or fp16 x and fp32 weights the gradient of the weights is summed in fp32 and not rounded in
/// between; elsewhere it has been rounded to the type of x.
at::Tensor rounded_linear(const at::Tensor& x, const std::vector<at::Tensor>& weights);

}  // namespace nsa
