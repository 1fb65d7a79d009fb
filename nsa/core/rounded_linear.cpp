#include "nsa/core/rounded_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

namespace nsa {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local const RoundedWeights* innermost = nullptr;  // NOLINT: one slot a thread is the purpose

struct KeptRecipe : torch::CustomClassHolder {
  Recipe make;
};

struct RoundedLinear : torch::autograd::Function<RoundedLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList weights,
                            const c10::intrusive_ptr<KeptRecipe>& again) {
    const at::Tensor rounded = rounded_rows(weights.vec(), x.scalar_type());
    std::vector<int64_t> heights;
    for (const at::Tensor& weight : weights) heights.push_back(weight.size(0));
    ctx->saved_data["heights"] = heights;
    ctx->saved_data["sizes"] = x.sizes().vec();
    if (again->make) ctx->saved_data["again"] = c10::IValue::make_capsule(again);
    ctx->save_for_backward({rounded, again->make ? at::Tensor() : x});
    return at::linear(x, rounded);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "nsa::rounded_linear: double backward is not supported; detach the gradient first");
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& rounded = saved[0];
    const at::Tensor d_out = grads[0].reshape({-1, rounded.size(0)});
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    variable_list result{ctx->needs_input_grad(0) ? at::mm(d_out, rounded).view(sizes)
                                                  : at::Tensor()};
    const at::Tensor x = input_of(*ctx, saved[1]);
    const at::Tensor d_rows = at::mm(d_out.t(), x.reshape({-1, x.size(-1)}), at::kFloat);
    for (at::Tensor& d_weight :
         d_rows.split_with_sizes(ctx->saved_data["heights"].toIntVector(), 0))
      result.push_back(std::move(d_weight));
    result.emplace_back();  // of the recipe
    return result;
  }

  static at::Tensor input_of(AutogradContext& ctx, const at::Tensor& kept) {
    const auto again = ctx.saved_data.find("again");
    if (again == ctx.saved_data.end()) return kept;
    return c10::static_intrusive_pointer_cast<KeptRecipe>(again->second.toCapsule())->make();
  }
};

}  // namespace

at::Tensor rounded_rows(const std::vector<at::Tensor>& weights, at::ScalarType type) {
  const at::Tensor found = innermost ? innermost->rows(weights, type) : at::Tensor();
  if (found.defined()) return found;
  return (weights.size() == 1 ? weights[0] : at::cat(weights)).to(type);
}

bool keeps_gradients_wide(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  return x.is_cuda() && x.numel() > 0 &&
         (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) &&
         std::all_of(weights.begin(), weights.end(), [](const at::Tensor& weight) {
           return weight.scalar_type() == at::kFloat && weight.is_cuda();
         });
}

RoundedWeights::RoundedWeights(const std::vector<at::Tensor>& weights, at::ScalarType type)
    : outer_(std::exchange(innermost, this)) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> taken, places;
  int64_t size = 0;
  for (const at::Tensor& weight : weights) {
    if (weight.dim() != 2 || !weight.is_contiguous()) continue;
    if (!taken.empty() && weight.options().dtype() != taken.front().options().dtype()) continue;
    offsets_[weight.unsafeGetTensorImpl()] = size;
    taken.push_back(weight);
    size += weight.numel();
  }
  if (taken.empty()) return;
  flat_ = at::empty({size}, taken.front().options().dtype(type).requires_grad(false));
  for (const at::Tensor& weight : taken)
    places.push_back(flat_.narrow(0, offsets_[weight.unsafeGetTensorImpl()], weight.numel())
                         .view(weight.sizes()));
  at::_foreach_copy_(places, taken);
}

RoundedWeights::~RoundedWeights() { innermost = outer_; }

at::Tensor RoundedWeights::rows(const std::vector<at::Tensor>& weights, at::ScalarType type) const {
  if (!flat_.defined() || flat_.scalar_type() != type) return {};
  int64_t first = -1, end = -1, height = 0;
  for (const at::Tensor& weight : weights) {
    const auto found = offsets_.find(weight.unsafeGetTensorImpl());
    if (found == offsets_.end() || (end >= 0 && found->second != end)) return {};
    if (first < 0) first = found->second;
    end = found->second + weight.numel();
    height += weight.size(0);
  }
  constexpr int64_t kAligned = 8;  // elements, 16 bytes
  if (first < 0 || first % kAligned != 0) return {};
  return flat_.narrow(0, first, end - first).view({height, weights.front().size(1)});
}

at::Tensor rounded_linear(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                          const Recipe& again) {
  if (keeps_gradients_wide(x, weights)) {
    const auto kept = c10::make_intrusive<KeptRecipe>();
    kept->make = again;
    return RoundedLinear::apply(x, at::TensorList(weights), kept);
  }
  return at::linear(x, (weights.size() == 1 ? weights[0] : at::cat(weights)).to(x.scalar_type()));
}

}  // namespace nsa
