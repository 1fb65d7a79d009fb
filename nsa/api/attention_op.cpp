// Kernels of the registered operators nsa::attention_fwd and nsa::attention_bwd, for batches, for
// packed documents (attention_varlen_*) and for one projection of q, k and v
// (attention_qkvpacked_*). Functional: no output shares memory with an input. The backward
// operator reads the arguments, the selected blocks and what its forward operator kept; where the
// kernels do not cover the call, and for packed documents on a CPU, it computes the branches once
// more.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "nsa/api/attention_stack.h"
#include "nsa/api/check_attention.h"
#include "nsa/api/kept_results.h"

namespace nsa {
namespace {

using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using torch::jit::Stack;

/// What a forward operator left there.
AttentionOutput output_on(const Stack& stack) {
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensorVector()};
}

AttentionOutput call_forward(const OperatorHandle& op, const OperatorArguments& arguments) {
  Stack stack;
  arguments.push(op.schema(), stack);
  op.callBoxed(stack);
  return output_on(stack);
}

/// Puts the results of a forward operator on the stack.
void push_forward(Stack& stack, const AttentionOutput& out) {
  torch::jit::push(stack, out.o, out.block_idx, out.kept);
}

OperatorHandle backward_of(const OperatorHandle& forward) {
  std::string name = forward.operator_name().name;
  name.replace(name.size() - 3, 3, "bwd");
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

// ---- CPU and CUDA

/// The dispatch keys of a fresh thread. A kernel may be entered with more of them excluded, for
/// example conjugation under a Python dispatch mode, without which gradients of complex products
/// are wrong.
c10::impl::LocalDispatchKeySet fresh_keys(bool recording) {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  keys.included_ = c10::default_included_set;
  keys.excluded_ = c10::default_excluded_set;
  if (!recording)
    keys.excluded_ = keys.excluded_ | c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys;
}

/// Results that share one allocation with an earlier one get their own: no output of an operator
/// may be an alias of another.
void separate(AttentionOutput& out) {
  std::vector<at::Tensor*> results{&out.o, &out.block_idx};
  for (at::Tensor& x : out.kept) results.push_back(&x);
  const auto is_alias = [](const at::Tensor* a, const at::Tensor* b) {
    return a->numel() > 0 && a->is_alias_of(*b);
  };
  for (size_t i = 1; i < results.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (is_alias(results[i], results[j])) *results[i] = results[i]->clone();
}

void forward_kernel(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  OperatorArguments arguments = OperatorArguments::pop(op.schema(), *stack);
  const at::NoGradGuard no_graph;
  const c10::impl::ForceDispatchKeyGuard keys(fresh_keys(/*recording=*/false));
  arguments.unpack();
  AttentionOutput out = compute(arguments.call, arguments.keep);
  out.o = out.o.contiguous();
  out.block_idx = out.block_idx.contiguous();
  separate(out);
  push_forward(*stack, out);
}

/// Gradients by autograd over the same call, computed once more.
variable_list gradients_of_recomputed(OperatorArguments& arguments) {
  variable_list gradients(kCallTensors.size());
  const at::AutoGradMode recording(true);
  const c10::impl::ForceDispatchKeyGuard keys(fresh_keys(/*recording=*/true));
  variable_list leaves;
  for (size_t i = 0; i < kCallTensors.size(); ++i) {
    at::Tensor& x = arguments.call.tensors[i];
    if (!x.defined()) continue;
    x = x.detach();
    if (arguments.wanted[i]) leaves.push_back(x.requires_grad_());
  }
  const at::Tensor o = compute(arguments.call).o;
  if (leaves.empty() || !o.requires_grad()) return gradients;
  const variable_list found =
      torch::autograd::grad({o}, leaves, {arguments.d_o}, /*retain_graph=*/std::nullopt,
                            /*create_graph=*/false, /*allow_unused=*/true);
  size_t next = 0;
  for (size_t i = 0; i < kCallTensors.size(); ++i)
    if (arguments.call.tensors[i].defined() && arguments.wanted[i]) gradients[i] = found[next++];
  return gradients;
}

variable_list gradients_of_kept(const OperatorArguments& arguments) {
  if (arguments.kept.empty() || arguments.wanted.none()) return {};
  const at::NoGradGuard no_graph;
  // On a CPU small graphs give the gradients of what surrounds the branches.
  const c10::impl::ForceDispatchKeyGuard keys(
      fresh_keys(/*recording=*/arguments.call.q().is_cpu()));
  return kept_gradients(arguments.call, arguments.kept, arguments.d_o, arguments.wanted);
}

void unpack_without_graph(OperatorArguments& arguments) {
  const at::NoGradGuard no_graph;
  const c10::impl::ForceDispatchKeyGuard keys(fresh_keys(/*recording=*/false));
  arguments.unpack();
}

void backward_kernel(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  OperatorArguments arguments = OperatorArguments::pop(op.schema(), *stack);
  unpack_without_graph(arguments);
  variable_list gradients = gradients_of_kept(arguments);
  if (gradients.empty()) gradients = gradients_of_recomputed(arguments);
  for (size_t i = 0; i < kCallTensors.size(); ++i) {
    const at::Tensor& x = arguments.call.tensors[i];
    const bool present = x.defined() && arguments.wanted[i];
    if (!present)
      gradients[i] = at::empty({0}, arguments.call.q().options());
    else if (!gradients[i].defined())
      gradients[i] = at::zeros_like(x, at::MemoryFormat::Contiguous);
  }
  if (arguments.call.columns && arguments.wanted[0])
    gradients[0] = at::cat({gradients[0].detach().flatten(2), gradients[1].detach().flatten(2),
                            gradients[2].detach().flatten(2)},
                           -1);
  for (const size_t place : arguments.gradient_places())
    stack->emplace_back(gradients[place].detach().contiguous());
}

// ---- Meta: shapes only, dynamic ones too

void forward_meta(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  OperatorArguments arguments = OperatorArguments::pop(op.schema(), *stack);
  arguments.unpack();
  const AttentionCall& call = arguments.call;
  check_attention(call);
  auto rows = call.q().sym_sizes().vec();
  rows.resize(rows.size() - 2);
  auto o = rows, ids = rows;
  o.insert(o.end(), {call.config.num_heads, call.config.v_head_dim});
  ids.emplace_back(call.config.num_kv_heads);
  ids.push_back(call.block_idx.defined() ? call.block_idx.sym_size(-1)
                                         : c10::SymInt(call.config.top_n));
  AttentionOutput out{at::empty_symint(o, call.q().options()),
                      at::empty_symint(ids, call.q().options().dtype(at::kInt))};
  if (arguments.keep) out.kept = kept_meta(call);
  push_forward(*stack, out);
}

void backward_meta(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const OperatorArguments arguments = OperatorArguments::pop(op.schema(), *stack);
  for (const size_t place : arguments.gradient_places()) {
    const at::Tensor& x = arguments.call.tensors[place];
    const bool present = x.defined() && arguments.wanted[place];
    stack->emplace_back(present ? at::empty_symint(x.sym_sizes(), x.options())
                                : at::empty({0}, arguments.call.q().options()));
  }
}

// ---- Autograd

struct CallState : torch::CustomClassHolder {
  OperatorHandle op;
  OperatorArguments arguments;  ///< without tensors
  Stack stack;                  ///< of the forward call, until it is made
  bool returns_kept = false;    ///< the caller asked for what is kept
  explicit CallState(OperatorHandle handle) : op(std::move(handle)) {}
};

struct AttentionNode : torch::autograd::Function<AttentionNode> {
  using Maybe = std::optional<at::Tensor>;  // an undefined tensor is no variable

  static variable_list forward(AutogradContext* ctx, const Maybe& q, const Maybe& k, const Maybe& v,
                               const Maybe& gates, const Maybe& k_cmp, const Maybe& v_cmp,
                               const Maybe& k_sel, const Maybe& v_sel, const Maybe& k_win,
                               const Maybe& v_win, const Maybe& /*block_idx*/,
                               const Maybe& cu_seqlens,
                               const c10::intrusive_ptr<CallState>& state) {
    const at::AutoDispatchBelowADInplaceOrView below;
    Stack stack = std::move(state->stack);
    state->op.callBoxed(stack);
    const AttentionOutput out = output_on(stack);
    variable_list saved;
    saved.reserve(kCallTensors.size() + 2 + out.kept.size());
    for (const Maybe* x : {&q, &k, &v, &gates, &k_cmp, &v_cmp, &k_sel, &v_sel, &k_win, &v_win})
      saved.push_back(x->value_or(at::Tensor()));
    saved.insert(saved.end(), {out.block_idx, cu_seqlens.value_or(at::Tensor())});
    saved.insert(saved.end(), out.kept.begin(), out.kept.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["state"] = c10::IValue::make_capsule(state);
    variable_list results{out.block_idx};
    if (state->returns_kept) results.insert(results.end(), out.kept.begin(), out.kept.end());
    ctx->mark_non_differentiable(results);
    results.insert(results.begin(), out.o);
    return results;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto state =
        c10::static_intrusive_pointer_cast<CallState>(ctx->saved_data["state"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    OperatorArguments arguments = state->arguments;
    size_t edge = 0;
    for (size_t i = 0; i < kCallTensors.size(); ++i) {
      arguments.call.tensors[i] = saved[i];
      if (saved[i].defined()) arguments.wanted[i] = ctx->needs_input_grad(edge++);
    }
    arguments.call.block_idx = saved[kCallTensors.size()];
    arguments.call.cu_seqlens = saved[kCallTensors.size() + 1];
    arguments.kept.assign(saved.begin() + kCallTensors.size() + 2, saved.end());
    arguments.d_o = grads[0];
    const OperatorHandle op = backward_of(state->op);
    Stack stack;
    arguments.push(op.schema(), stack);
    op.callBoxed(stack);
    variable_list result(kCallTensors.size() + 3);
    size_t next = 0;
    for (const size_t place : arguments.gradient_places()) {
      const c10::IValue& gradient = stack[next++];
      if (arguments.wanted[place]) result[place] = gradient.toTensor();
    }
    return result;
  }
};

bool any_requires_grad(const AttentionCall& call) {
  if (!at::GradMode::is_enabled()) return false;
  for (const at::Tensor& x : call.tensors)
    if (x.defined() && x.requires_grad()) return true;
  return false;
}

bool any_requires_grad(const OperatorHandle& op, const Stack& stack) {
  if (!at::GradMode::is_enabled()) return false;
  for (const c10::IValue& x : torch::jit::last(stack, op.schema().arguments().size()))
    if (x.isTensor() && x.toTensor().requires_grad()) return true;
  return false;
}

/// Whether it is worth keeping results: a question of device and types alone, so that tensors of
/// dynamic sizes have the same answer. kept_gradients asks the kernels.
bool kernels_may_differentiate(const AttentionCall& call) {
  const at::ScalarType type = call.q().scalar_type();
  if (call.backend == Backend::kPlain) return false;
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  if (call.q().is_cpu() && call.cu_seqlens.defined()) return false;
  if (call.q().is_cpu()) return call.backend == Backend::kAuto && (half || type == at::kFloat);
  return call.q().is_cuda() && half;
}

size_t place_of_keep(const OperatorHandle& op) {
  const std::optional<int> place = op.schema().argumentIndexWithName("keep");
  TORCH_INTERNAL_ASSERT(place.has_value(), "nsa::attention: no argument keep");
  return static_cast<size_t>(*place);
}

void forward_autograd(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  if (!any_requires_grad(op, *stack)) {  // the arguments go on as they are
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.callBoxed(*stack);
  }
  auto state = c10::make_intrusive<CallState>(op);
  // The call below has these arguments as they are, but for `keep`.
  const auto given = torch::jit::last(*stack, op.schema().arguments().size());
  state->stack.assign(given.begin(), given.end());
  OperatorArguments arguments = OperatorArguments::pop(op.schema(), *stack);
  state->returns_kept = arguments.keep;
  arguments.keep = arguments.keep || kernels_may_differentiate(arguments.call);
  state->stack[place_of_keep(op)] = arguments.keep;
  const auto maybe = [](at::Tensor& x) {
    return x.defined() ? std::optional(std::move(x)) : std::nullopt;
  };
  std::array<std::optional<at::Tensor>, kCallTensors.size()> tensors;
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i] = maybe(arguments.call.tensors[i]);
  const auto& t = std::as_const(tensors);
  const auto block_idx = maybe(arguments.call.block_idx),
             cu_seqlens = maybe(arguments.call.cu_seqlens);
  state->arguments = std::move(arguments);
  const variable_list out = AttentionNode::apply(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7],
                                                 t[8], t[9], block_idx, cu_seqlens, state);
  push_forward(*stack, {out[0], out[1], variable_list(out.begin() + 2, out.end())});
}

void backward_autograd(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const OperatorArguments arguments = OperatorArguments::pop(op.schema(), *stack);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !any_requires_grad(arguments.call) &&
          !(at::GradMode::is_enabled() && arguments.d_o.requires_grad()),
      "nsa::attention: double backward is not supported; detach the gradient first");
  const at::AutoDispatchBelowADInplaceOrView below;
  arguments.push(op.schema(), *stack);
  op.callBoxed(*stack);
}

// ---- Autocast: everything but the gates in the lower precision of the device

void forward_autocast(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  OperatorArguments arguments = OperatorArguments::pop(op.schema(), *stack);
  const c10::DeviceType device = arguments.call.q().device().type();
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const at::ScalarType type = at::autocast::get_autocast_dtype(device);
  for (size_t i = 0; i < kCallTensors.size(); ++i) {
    at::Tensor& x = arguments.call.tensors[i];
    if (x.defined() && std::string_view(kCallTensors[i]) != "gates")
      x = at::autocast::cached_cast(type, x, device);
  }
  push_forward(*stack, call_forward(op, arguments));
}

/// One kernel for the three operators of a direction, "_fwd" or "_bwd".
template <auto* kernel>
void implement(torch::Library& m, const std::string& direction) {
  for (const char* name : {"attention", "attention_varlen", "attention_qkvpacked"})
    m.impl((name + direction).c_str(), torch::CppFunction::makeFromBoxedFunction<kernel>());
}

}  // namespace
}  // namespace nsa

TORCH_LIBRARY_IMPL(nsa, CPU, m) {
  nsa::implement<nsa::forward_kernel>(m, "_fwd");
  nsa::implement<nsa::backward_kernel>(m, "_bwd");
}
TORCH_LIBRARY_IMPL(nsa, CUDA, m) {
  nsa::implement<nsa::forward_kernel>(m, "_fwd");
  nsa::implement<nsa::backward_kernel>(m, "_bwd");
}
TORCH_LIBRARY_IMPL(nsa, Meta, m) {
  nsa::implement<nsa::forward_meta>(m, "_fwd");
  nsa::implement<nsa::backward_meta>(m, "_bwd");
}
TORCH_LIBRARY_IMPL(nsa, Autograd, m) {
  nsa::implement<nsa::forward_autograd>(m, "_fwd");
  nsa::implement<nsa::backward_autograd>(m, "_bwd");
}
// A backward pass has the types of its forward pass: autocast leaves it alone.
TORCH_LIBRARY_IMPL(nsa, AutocastCPU, m) { nsa::implement<nsa::forward_autocast>(m, "_fwd"); }
TORCH_LIBRARY_IMPL(nsa, AutocastCUDA, m) { nsa::implement<nsa::forward_autocast>(m, "_fwd"); }
