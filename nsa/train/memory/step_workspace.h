#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/train/memory/memory_plan.h"

namespace nsa::train {

/// `shape` with what matrix products and the selected branch's backward pass of a step of `type` on
/// `device` work in; as it is on a CPU.
StepShape with_workspaces(StepShape shape, const ModelConfig& model, at::ScalarType type,
                          at::Device device);

}  // namespace nsa::train
