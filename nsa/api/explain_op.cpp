// The registered operators nsa::why_not_fused and nsa::which_backend: functions of nsa.h, for
// Python.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <string>

#include "nsa/api/attention_stack.h"
#include "nsa/api/operator_schema.h"
#include "nsa/nsa.h"

namespace nsa {
namespace {

template <auto* question>
void answer(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const AttentionCall call = OperatorArguments::pop(op.schema(), *stack).call;
  const auto& [q, k, v, gates, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win] = call.tensors;
  torch::jit::push(*stack, question(q, k, v, gates, call.config));
}

}  // namespace
}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  for (const char* name : {"why_not_fused", "which_backend"})
    m.def((std::string(name) + "(Tensor q, Tensor k, Tensor v, Tensor gates, " + nsa::kSettings +
           ") -> str")
              .c_str());
}
TORCH_LIBRARY_IMPL(nsa, CompositeExplicitAutograd, m) {
  using torch::CppFunction;
  m.impl("why_not_fused", CppFunction::makeFromBoxedFunction<nsa::answer<nsa::why_not_fused>>());
  m.impl("which_backend", CppFunction::makeFromBoxedFunction<nsa::answer<nsa::which_backend>>());
}
