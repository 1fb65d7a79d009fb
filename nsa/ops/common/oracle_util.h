#pragma once
// Tensors to and from the oracle's, for tests that compare with it.
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

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

/// The inverse; `dtype` must be that of T.
template <class T>
at::Tensor to_aten(const reference::Tensor<T>& tensor, at::ScalarType dtype) {
  at::Tensor x = at::empty(tensor.shape(), dtype);
  std::copy(tensor.values().begin(), tensor.values().end(), x.mutable_data_ptr<T>());
  return x;
}

}  // namespace nsa
