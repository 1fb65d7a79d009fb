#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/kernels/common/size_limits.h"

/// Heads of dims that no kernel has, computed by kernels of larger ones: zeros behind the elements
/// of q and k leave q.k as it is, columns of V that are 0 give columns of the output that are 0,
/// and gradients of the zeros are dropped. The scale stays that of the caller's dims.
namespace nsa {

/// The head dims that kernels compute q [.., dk] and v [.., dv] with.
kernels::HeadDims computed_head_dims(const at::Tensor& q, const at::Tensor& v);
/// Whether they are others than those of the tensors.
bool pads_heads(const at::Tensor& q, const at::Tensor& v);

/// [.., D] -> [.., width], zeros behind D; x itself where it is that wide.
at::Tensor padded_heads(const at::Tensor& x, int64_t width);
/// [.., D] -> its first `width` elements, contiguous; x itself where it has no more.
at::Tensor narrowed_heads(const at::Tensor& x, int64_t width);

}  // namespace nsa
