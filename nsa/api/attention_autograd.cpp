// The registered operators of the whole call on the key Autograd: a node of their own in the graph.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "nsa/api/attention_stack.h"
#include "nsa/api/implement.h"

namespace nsa {
namespace {

using c10::DispatchKeySet;
using c10::IValue;
using c10::OperatorHandle;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::jit::Stack;

bool is_tensor(const IValue& x) { return x.isTensor() && x.toTensor().defined(); }

OperatorHandle backward_of(const OperatorHandle& forward) {
  std::string name = forward.operator_name().name;
  name.replace(name.size() - 3, 3, "bwd");
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

/// The backward pass of one call: the arguments of its forward operator, the selected blocks and
/// what the forward operator kept.
class AttentionNode : public torch::autograd::Node {
 public:
  /// `arguments`: those of the forward operator, as they lie on its stack.
  AttentionNode(OperatorHandle op, at::ArrayRef<IValue> arguments) : op_(std::move(op)) {
    settings_.reserve(arguments.size());
    for (size_t place = 0; place < arguments.size(); ++place) {
      const bool saves = is_tensor(arguments[place]);
      settings_.push_back(saves ? IValue() : arguments[place]);
      if (!saves) continue;
      places_.push_back(place);
      saved_.emplace_back(arguments[place].toTensor(), /*is_output=*/false);
    }
    for (const size_t place : forward_places(op_.schema()).tensors)
      if (is_tensor(arguments[place]))
        add_next_edge(torch::autograd::impl::gradient_edge(arguments[place].toTensor()));
  }

  /// `o`: the output where the backward pass reads it, else undefined.
  void save_results(const at::Tensor& block_idx, const variable_list& kept, const at::Tensor& o) {
    saved_.emplace_back(block_idx, /*is_output=*/false);  // it has no gradient
    for (const at::Tensor& x : kept) saved_.emplace_back(x, /*is_output=*/false);
    // Without its history, which would hold the node.
    if (o.defined()) saved_.emplace_back(o.detach(), /*is_output=*/false);
  }

  variable_list apply(variable_list&& gradients) override {
    variable_list result(num_outputs());
    if (!gradients[0].defined()) return result;
    OperatorArguments arguments = unpack();
    arguments.d_o = gradients[0];
    const std::vector<size_t> of_call = arguments.gradient_places();
    uint32_t edge = 0;
    for (const size_t place : of_call)
      if (arguments.call.tensors[place].defined())
        arguments.wanted[place] = task_should_compute_output(edge++);
    const OperatorHandle op = backward_of(op_);
    Stack stack;
    arguments.push(op.schema(), stack);
    arguments.kept.clear();  // the operator alone holds them now
    op.callBoxed(stack);
    edge = 0;
    for (size_t i = 0; i < of_call.size(); ++i) {
      if (!arguments.call.tensors[of_call[i]].defined()) continue;
      if (arguments.wanted[of_call[i]]) result[edge] = stack[i].toTensor();
      ++edge;
    }
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    for (SavedVariable& x : saved_) x.reset_data();
  }

  std::string name() const override { return "NsaAttentionBackward"; }

 private:
  /// The call, with what its forward operator left. The node gives that up where the graph is not
  /// kept: otherwise it would take its memory to the end of the backward pass.
  OperatorArguments unpack() {
    const std::lock_guard lock(mutex_);
    Stack stack = settings_;
    size_t next = 0;
    for (const size_t place : places_) stack[place] = saved_[next++].unpack();
    OperatorArguments arguments = OperatorArguments::pop(op_.schema(), stack);
    arguments.call.block_idx = saved_[next++].unpack();
    const bool keeps = torch::autograd::get_current_graph_task_keep_graph();
    for (; next < saved_.size(); ++next) {
      arguments.kept.push_back(saved_[next].unpack());
      if (!keeps) saved_[next].reset_data();
    }
    return arguments;
  }

  OperatorHandle op_;
  Stack settings_;              ///< the arguments; none in the place of a tensor
  std::vector<size_t> places_;  ///< of the tensors
  /// The tensors, block_idx, what was kept. In pieces: one of all is large for the allocator.
  std::deque<SavedVariable> saved_;
};

bool any_requires_grad(at::ArrayRef<IValue> arguments) {
  if (!at::GradMode::is_enabled()) return false;
  for (const IValue& x : arguments)
    if (is_tensor(x) && x.toTensor().requires_grad()) return true;
  return false;
}

/// Whether it is worth keeping results: a question of device and types alone, so that tensors of
/// dynamic sizes have the same answer. kept_gradients asks the kernels.
bool kernels_may_differentiate(const ForwardPlaces& places, at::ArrayRef<IValue> arguments) {
  const at::Tensor& q = arguments[places.tensors[0]].toTensor();
  const Backend backend = parse_backend(arguments[places.backend].toStringRef());
  const at::ScalarType type = q.scalar_type();
  if (backend == Backend::kPlain) return false;
  const bool half = type == at::kBFloat16 || type == at::kHalf;
  if (q.is_cuda()) return half;
  if (!q.is_cpu() || places.cu_seqlens) return false;
  return backend == Backend::kAuto && (half || type == at::kFloat);
}

/// keeps_two, from what lies on the stack.
bool reads_output(const ForwardPlaces& places, at::ArrayRef<IValue> arguments) {
  const at::Tensor& q = arguments[places.tensors[0]].toTensor();
  return q.is_cuda() && kernels_may_differentiate(places, arguments) &&
         parse_gate_activation(arguments[places.gate].toStringRef()) != GateActivation::kNone;
}

/// What is wanted of a forward-mode derivative is refused: it would be lost without a word.
void refuse_forward_mode(at::ArrayRef<IValue> arguments) {
  for (const IValue& x : arguments)
    TORCH_CHECK_NOT_IMPLEMENTED(!is_tensor(x) || !x.toTensor()._fw_grad(/*level=*/0).defined(),
                                "nsa::attention: forward-mode derivatives are not supported; use "
                                "backward()");
}

void forward_autograd(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const at::ArrayRef<IValue> given = torch::jit::last(*stack, count);
  refuse_forward_mode(given);
  if (!any_requires_grad(given)) {  // the arguments go on as they are
    const at::AutoDispatchBelowADInplaceOrView below;
    return op.callBoxed(*stack);
  }
  const ForwardPlaces& places = forward_places(op.schema());
  const std::shared_ptr<AttentionNode> node(new AttentionNode(op, given),
                                            torch::autograd::deleteNode);
  const bool returns_kept = given[places.keep].toBool();
  (*stack)[stack->size() - count + places.keep] =
      returns_kept || kernels_may_differentiate(places, given);
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(*stack);
  }
  const variable_list kept = torch::jit::peek(*stack, 2, 3).toTensorVector();
  node->save_results(torch::jit::peek(*stack, 1, 3).toTensor(), kept,
                     !kept.empty() && reads_output(places, given)
                         ? torch::jit::peek(*stack, 0, 3).toTensor()
                         : at::Tensor());
  if (!returns_kept) stack->back() = variable_list();
  torch::autograd::set_history(torch::jit::peek(*stack, 0, 3).toTensor(), node);
}

void backward_autograd(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !any_requires_grad(torch::jit::last(*stack, op.schema().arguments().size())),
      "nsa::attention: double backward is not supported; detach the gradient first");
  const at::AutoDispatchBelowADInplaceOrView below;
  op.callBoxed(*stack);
}

}  // namespace
}  // namespace nsa

TORCH_LIBRARY_IMPL(nsa, Autograd, m) {
  nsa::implement<nsa::forward_autograd>(m, "_fwd");
  nsa::implement<nsa::backward_autograd>(m, "_bwd");
}
