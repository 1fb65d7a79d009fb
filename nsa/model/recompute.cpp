#include "nsa/model/recompute.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <mutex>
#include <utility>

#include "nsa/diagnostics/nvtx_range.h"

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// States of the generators that a computation may draw from: the CPU's and that of its device.
class Generators {
 public:
  explicit Generators(at::Device device) {
    add(at::globalContext().defaultGenerator(at::kCPU));
    if (!device.is_cpu()) add(at::globalContext().defaultGenerator(device));
  }
  void restore() {
    for (auto& [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  void add(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// Sets the generators back to what they were before the first computation, while it lives.
class ReplayedNumbers {
 public:
  ReplayedNumbers(Generators then, at::Device device) : now_(device) { then.restore(); }
  ~ReplayedNumbers() { now_.restore(); }
  ReplayedNumbers(const ReplayedNumbers&) = delete;
  ReplayedNumbers& operator=(const ReplayedNumbers&) = delete;

 private:
  Generators now_;
};

/// What the second computation needs beside its tensors.
struct Call : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor&)> f;
  RunRecordPtr record;
  std::optional<Generators> generators;
};
using CallPtr = c10::intrusive_ptr<Call>;

at::Tensor detached_input(const at::Tensor& x) {
  return x.detach().requires_grad_(x.requires_grad());
}

struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(AutogradContext* ctx, const CallPtr& call, const at::Tensor& x,
                            at::TensorList parameters) {
    variable_list saved = {x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    call->generators.emplace(x.device());
    const at::AutoGradMode as_if_differentiated(true);  // a backend may run another path without
    const RunRecordScope scope(call->record);
    return call->f(detached_input(x)).detach();
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::recomputed: double backward is not supported; detach the gradient first");
    const NvtxRange range("model.recompute");
    variable_list inputs = ctx->get_saved_variables();
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    inputs[0] = detached_input(inputs[0]);
    const ReplayedNumbers replayed(*call->generators, inputs[0].device());
    const at::Tensor y = [&] {
      const at::AutoGradMode enabled(true);
      const RunRecordScope scope(call->record);
      return call->f(inputs[0]);
    }();
    variable_list wanted;
    for (const at::Tensor& input : inputs)
      if (input.requires_grad()) wanted.push_back(input);
    const variable_list found =
        torch::autograd::grad({y}, wanted, {grads[0]}, /*retain_graph=*/std::nullopt,
                              /*create_graph=*/false, /*allow_unused=*/true);
    variable_list result = {{}};  // of the call
    size_t next = 0;
    for (const at::Tensor& input : inputs)
      result.push_back(input.requires_grad() ? found[next++] : at::Tensor());
    return result;
  }
};

}  // namespace

Recomputed recomputed(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters) {
  const auto call = c10::make_intrusive<Call>();
  call->f = f;
  call->record = c10::make_intrusive<RunRecord>(/*audit=*/false, current_record());
  return {Recompute::apply(call, x, at::TensorList(parameters)), call->record};
}

}  // namespace nsa
