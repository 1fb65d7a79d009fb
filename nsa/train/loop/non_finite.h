#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

#include "nsa/model/decoder.h"

namespace nsa::train {

using LossFunction = std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& tokens)>;

/// Repeats the step on one batch and names the first tensor that holds a NaN or an infinity: a
/// parameter, else the first result of the forward pass (layer, branch, operation), else the loss,
/// else the first gradient of such a result in the order of the backward pass, else that of a
/// parameter, from the end of the model. "" when everything is finite. tokens [B, S+1]
/// int64. Gradients are left cleared.
std::string locate_non_finite(Decoder& model, const at::Tensor& tokens, const LossFunction& loss,
                              const LayerAttention& attention = {});

}  // namespace nsa::train
