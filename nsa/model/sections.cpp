#include "nsa/model/sections.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

#include "nsa/ops/linear/transient_weights.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BackwardCall : torch::CustomClassHolder {
  std::function<void()> f;
};

/// Identity whose backward pass calls f once the gradients of all its outputs are there.
struct OnBackward : torch::autograd::Function<OnBackward> {
  static variable_list forward(AutogradContext* ctx, at::TensorList tensors,
                               const c10::intrusive_ptr<BackwardCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->set_materialize_grads(false);
    return tensors.vec();
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    c10::static_intrusive_pointer_cast<BackwardCall>(ctx->saved_data["call"].toCapsule())->f();
    grads.emplace_back();  // of the call
    return grads;
  }
};

Residual on_backward(const Residual& in, std::function<void()> f) {
  if (!in.x.defined()) return in;
  const auto call = c10::make_intrusive<BackwardCall>();
  call->f = std::move(f);
  std::vector<at::Tensor> tensors = {in.x};
  if (in.added.defined()) tensors.push_back(in.added);
  const variable_list out = OnBackward::apply(at::TensorList(tensors), call);
  return {out[0], out.size() > 1 ? out[1] : at::Tensor()};
}

}  // namespace

// Nodes of a section have higher sequence numbers than the one in front of it: autograd runs every
// one of them, those that store gradients included, before after_backward.
Residual run_section(SectionObserver* observer, size_t section, const Residual& in,
                     const std::function<Residual(const Residual&)>& f) {
  if (observer == nullptr) return f(in);
  observer->before_forward(section);
  const Residual watched =
      on_backward(in, [observer, section] { observer->after_backward(section); });
  Residual out = [&] {
    const TransientWeights transient;
    return f(watched);
  }();
  if (in.x.defined())
    out = on_backward(out, [observer, section] { observer->before_backward(section); });
  observer->after_forward(section);
  return out;
}

}  // namespace nsa
