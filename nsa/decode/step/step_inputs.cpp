#include "nsa/decode/step/step_inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "nsa/layer/nsa_inputs.h"
#include "nsa/ops/common/check.h"
#include "nsa/ops/common/operator_call.h"

namespace nsa {
namespace {

std::array<at::Tensor*, 20> differentiable_members(NsaInputs& x) {
  PhiWeights &k = x.phi_k, &v = x.phi_v;
  return {&x.q,           &x.k_cmp_src, &x.v_cmp_src, &x.k_sel, &x.v_sel, &x.k_win, &x.v_win,
          &x.gate_logits, &k.conv,      &k.pe,        &k.w1,    &k.b1,    &k.w2,    &k.b2,
          &v.conv,        &v.pe,        &v.w1,        &v.b1,    &v.w2,    &v.b2};
}

}  // namespace

bool needs_gradient(const NsaInputs& inputs) {
  NsaInputs copy = inputs;
  const auto tensors = differentiable_members(copy);
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor* x) { return x->defined() && needs_gradient({*x}); });
}

StepInputs::StepInputs(const NsaInputs& inputs) : given_(inputs), wide_(inputs) {
  if (!needs_gradient(inputs)) return;
  for (at::Tensor* x : differentiable_members(wide_)) {
    if (x->defined()) *x = x->to(wider_type(x->scalar_type()));
  }
}

NsaInputs StepInputs::take(const std::function<at::Tensor(const at::Tensor&)>& rows) const {
  NsaInputs piece = map_tokens(wide_, rows), types = given_;
  const auto to = differentiable_members(piece), from = differentiable_members(types);
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i]->defined()) *to[i] = to[i]->to(from[i]->scalar_type());
  }
  return piece;
}

}  // namespace nsa
