#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "nsa/train/loop/step_record.h"

namespace nsa::train {

/// Reduces the gates of all layers to seven numbers on their device, in the order of GateStats.
/// gates: per layer
/// [..., 3] of one shape, activated. Returns fp64 [7].
at::Tensor reduce_gates(const std::vector<at::Tensor>& gates);

/// The seven numbers, on the CPU, as a struct.
GateStats gate_stats(const double* values);

inline constexpr int64_t kNumGateStats = 7;

}  // namespace nsa::train
