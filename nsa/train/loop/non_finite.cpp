#include "nsa/train/loop/non_finite.h"

#include <ATen/ATen.h>

namespace nsa::train {
namespace {

/// "PLACE: 12 of 4096 values are not finite (3 NaN), first at index 17", or "" for a finite tensor.
std::string describe_if_bad(const std::string& place, const at::Tensor& value) {
  const at::Tensor bad = at::isfinite(value.detach()).logical_not();
  const auto count = bad.sum().item<int64_t>();
  if (count == 0) return "";
  return place + ": " + std::to_string(count) + " of " + std::to_string(value.numel()) +
         " values are not finite (" +
         std::to_string(at::isnan(value.detach()).sum().item<int64_t>()) +
         " NaN), first at flat index " +
         std::to_string(bad.flatten().to(at::kByte).argmax().item<int64_t>());
}

std::string bad_parameter(Decoder& model) {
  for (const auto& item : model->named_parameters()) {
    const std::string found = describe_if_bad("parameter " + item.key(), item.value());
    if (!found.empty()) return found;
  }
  return "";
}

std::string bad_gradient(Decoder& model) {
  const auto parameters = model->named_parameters();
  for (size_t i = parameters.size(); i-- > 0;) {
    const at::Tensor gradient = parameters[i].value().grad();
    if (!gradient.defined()) continue;
    const std::string found = describe_if_bad("gradient of " + parameters[i].key(), gradient);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

std::string locate_non_finite(Decoder& model, const at::Tensor& tokens, const LossFunction& loss,
                              const LayerAttention& attention) {
  std::string found = bad_parameter(model);
  if (!found.empty()) return found;
  model->zero_grad();
  std::string found_backward;  // autograd's thread writes it while this one waits
  const auto probe = [&](const std::string& place, const at::Tensor& value) {
    if (found.empty()) found = describe_if_bad(place, value);
    if (!value.requires_grad()) return;
    value.register_hook([&found_backward, place](const at::Tensor& gradient) {
      if (found_backward.empty() && gradient.defined())
        found_backward = describe_if_bad("gradient of " + place, gradient);
    });
  };
  const auto out = model->forward(tokens.slice(1, 0, -1), probe, attention);
  const at::Tensor value = loss(out.logits, tokens);
  probe("loss", value);
  if (found.empty()) {
    value.backward();
    found = found_backward.empty() ? bad_gradient(model) : found_backward;
  }
  model->zero_grad();
  return found;
}

}  // namespace nsa::train
