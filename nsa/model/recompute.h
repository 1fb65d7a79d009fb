#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "nsa/diagnostics/run_record.h"

namespace nsa {

/// A result of which only the input is kept for the backward pass.
struct Recomputed {
  at::Tensor y;
  RunRecordPtr record;  ///< everything that ran: both computations, and their backward pass
};

/// f(x) with activation checkpointing: the backward pass computes f(x) again, bit for bit, and
/// differentiates that. `parameters`: whatever else f depends on and that learns. Both computations
/// see the same random numbers, the same paths (the first one, too, runs as if it were
/// differentiated) and the same record; the second one is in NVTX range model.recompute.
/// Differentiable once. `f` is called again later: what it refers to must live as long as the
/// graph.
Recomputed recomputed(const std::function<at::Tensor(const at::Tensor&)>& f, const at::Tensor& x,
                      const std::vector<at::Tensor>& parameters);

}  // namespace nsa
