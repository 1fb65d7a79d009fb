#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// Rows of weight [vocab, dim] for tokens [...] int64 in 0..vocab-1: [..., dim] in `type`.
/// Differentiable once in `weight`; the gradient has the same bits every time (that of
/// at::embedding on CUDA has not), summed in fp32 or wider.
at::Tensor embed_tokens(const at::Tensor& weight, const at::Tensor& tokens, at::ScalarType type);

}  // namespace nsa
