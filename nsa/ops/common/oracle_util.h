#pragma once
// Tensors and configurations to and from the oracle's, for tests that compare with it.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <vector>

#include "nsa/config/config.h"
#include "nsa/reference/config.h"
#include "nsa/reference/tensor.h"

namespace nsa {

/// A CPU tensor of element type T for the oracle; undefined: an empty one.
template <class T>
reference::Tensor<T> ref_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor x = tensor.detach().contiguous();
  const T* data = x.const_data_ptr<T>();
  return {x.sizes().vec(), std::vector<T>(data, data + x.numel())};
}

/// The same sizes and choices.
inline reference::Config ref_of(const NsaConfig& c) {
  namespace ref = reference;
  ref::Config r;
  r.num_heads = c.num_heads, r.num_kv_heads = c.num_kv_heads;
  r.qk_head_dim = c.qk_head_dim, r.v_head_dim = c.v_head_dim;
  r.block_size = c.block_size, r.block_stride = c.block_stride;
  r.sel_block_size = c.sel_block_size, r.top_n = c.top_n;
  r.n_initial = c.num_initial, r.n_local = c.num_local, r.window = c.window;
  r.phi = std::array{ref::Phi::kMean, ref::Phi::kConv, ref::Phi::kMlp}[static_cast<int>(c.phi)];
  r.gate = std::array{ref::Gate::kNone, ref::Gate::kSoftmax,
                      ref::Gate::kSigmoid}[static_cast<int>(c.gate)];
  r.rope = std::array{ref::Rope::kBeforePool, ref::Rope::kBlockStart,
                      ref::Rope::kNone}[static_cast<int>(c.rope)];
  r.rope_base = c.rope_base;
  r.rope_pairs = c.rope_pairs == RopePairs::kHalfSplit ? ref::RopePairs::kHalfSplit
                                                       : ref::RopePairs::kInterleaved;
  r.scale_cmp = c.scale_cmp, r.scale_sel = c.scale_sel, r.scale_win = c.scale_win;
  return r;
}

/// The inverse of ref_of for tensors; `dtype` must be that of T.
template <class T>
at::Tensor to_aten(const reference::Tensor<T>& tensor, at::ScalarType dtype) {
  at::Tensor x = at::empty(tensor.shape(), dtype);
  std::copy(tensor.values().begin(), tensor.values().end(), x.mutable_data_ptr<T>());
  return x;
}

}  // namespace nsa
