#pragma once
#include <ATen/core/Tensor.h>

#include <utility>

namespace nsa {

/// sel_attn without argument checks, by gathering each row's keys and values: work and memory
/// follow the number of selected tokens, not S. Synchronises with the device once a chunk of
/// queries.
/// -> {out, lse}, differentiable once; gradients of gathered rows are added up by a sort, so they
/// are the same every time.
std::pair<at::Tensor, at::Tensor> gathered_attention(const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, const at::Tensor& ranges,
                                                     int64_t first_position, double scale);

}  // namespace nsa
