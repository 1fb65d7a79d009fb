#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <initializer_list>

namespace nsa {

/// A registered operator; a caller looks it up once:
///   static const auto op = find_operator<Signature>("nsa::x");
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

/// True where a call on these tensors will be differentiated.
inline bool needs_gradient(std::initializer_list<at::Tensor> tensors) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.requires_grad()) return true;
  }
  return false;
}

/// True where a call on these tensors needs a node of the graph: to be differentiated, or to refuse
/// a forward-mode derivative. A node costs the host as much as a small launch.
inline bool needs_node(std::initializer_list<at::Tensor> tensors) {
  if (needs_gradient(tensors)) return true;
  for (const at::Tensor& tensor : tensors) {
    if (tensor._fw_grad(/*level=*/0).defined()) return true;
  }
  return false;
}

}  // namespace nsa
