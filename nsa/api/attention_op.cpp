// Kernels of the registered operators nsa::attention_fwd and nsa::attention_bwd on the keys CPU,
// CUDA, Meta and Autocast, for batches, for packed documents (attention_varlen_*) and for one
// projection of q, k and v (attention_qkvpacked_*). Functional: no output shares memory with an
// input. The backward operator reads the arguments, the selected blocks and what its forward
// operator kept; where the kernels do not cover the call, and for packed documents on a CPU, it
// computes the branches once more.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "nsa/api/attention_stack.h"
#include "nsa/api/check_attention.h"
#include "nsa/api/implement.h"
#include "nsa/api/kept_results.h"

namespace nsa {
namespace {

using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::autograd::variable_list;
using torch::jit::Stack;

void push_results(Stack& stack, const AttentionOutput& out) {
  torch::jit::push(stack, out.o, out.block_idx, out.kept);
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
  std::vector<const void*> known;
  known.reserve(results.size());
  for (at::Tensor* const x : results) {
    const void* storage = x->storage().unsafeGetStorageImpl();
    if (std::ranges::find(known, storage) != known.end() && x->numel() > 0) {
      *x = x->clone();
      storage = x->storage().unsafeGetStorageImpl();
    }
    known.push_back(storage);
  }
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
  push_results(*stack, out);
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

variable_list gradients_of_kept(OperatorArguments& arguments) {
  if (arguments.kept.empty() || arguments.wanted.none()) return {};
  const at::NoGradGuard no_graph;
  // On a CPU small graphs give the gradients of what surrounds the branches.
  const c10::impl::ForceDispatchKeyGuard keys(
      fresh_keys(/*recording=*/arguments.call.q().is_cpu()));
  return kept_gradients(arguments.call, std::move(arguments.kept), arguments.d_o, arguments.wanted);
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
  push_results(*stack, out);
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
  arguments.push(op.schema(), *stack);
  op.callBoxed(*stack);
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
// A backward pass has the types of its forward pass: autocast leaves it alone.
TORCH_LIBRARY_IMPL(nsa, AutocastCPU, m) { nsa::implement<nsa::forward_autocast>(m, "_fwd"); }
TORCH_LIBRARY_IMPL(nsa, AutocastCUDA, m) { nsa::implement<nsa::forward_autocast>(m, "_fwd"); }
