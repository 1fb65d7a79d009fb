// The registered operator nsa::why_not_fused, the function of nsa.h for Python.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <string>

#include "nsa/api/attention_stack.h"
#include "nsa/api/operator_schema.h"
#include "nsa/nsa.h"

namespace nsa {
namespace {

void why_not_fused_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet,
                          torch::jit::Stack* stack) {
  const AttentionCall call = OperatorArguments::pop(op.schema(), *stack).call;
  const auto& [q, k, v, gates, k_cmp, v_cmp, k_sel, v_sel, k_win, v_win] = call.tensors;
  torch::jit::push(*stack, why_not_fused(q, k, v, gates, call.config));
}

}  // namespace
}  // namespace nsa

TORCH_LIBRARY_FRAGMENT(nsa, m) {
  m.def((std::string("why_not_fused(Tensor q, Tensor k, Tensor v, Tensor gates, ") +
         nsa::kSettings + ") -> str")
            .c_str());
}
TORCH_LIBRARY_IMPL(nsa, CompositeExplicitAutograd, m) {
  m.impl("why_not_fused", torch::CppFunction::makeFromBoxedFunction<nsa::why_not_fused_kernel>());
}
