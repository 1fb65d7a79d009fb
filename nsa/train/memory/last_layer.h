#pragma once
#include "nsa/train/memory/memory_plan.h"

namespace nsa::train {

/// The softmax of the logits and the gradients of both, in the accumulation type.
double logits_bytes(const ModelConfig& model, const StepShape& shape);

/// Bytes that the backward pass of the last layer has beyond parameters and activations, when the
/// logits are gone: at its MLP or at its attention, where it has more. 0, not known, without
/// kernels and for dense attention, whose library's workspace is not known.
double last_layer_bytes(const ModelConfig& model, const StepShape& shape, bool gradients_kept);

}  // namespace nsa::train
