#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/config/config.h"
#include "nsa/config/projection_config.h"
#include "nsa/layer/nsa_attention.h"
#include "nsa/ops/gate/gate.h"

namespace nsa {

/// Inputs of the attention call from one projection of x: `columns` [..., W] holds q, k_cmp_src,
/// k_sel, k_win, v_cmp_src, v_sel and v_win side by side, and stays what they are views of; gate
/// logits by gate_mlp from q. On CUDA, where the gate MLP has kernels, all of it is one node of the
/// autograd graph, which takes gradients that lie side by side as they are. With a shared K and V
/// there is one k and one v, which serve all branches; with linear gates their logits
/// [..., Hq, 3] are the last columns.
NsaInputs split_projection(const at::Tensor& columns, const GateWeights& gate,
                           const NsaConfig& config, const ProjectionConfig& projections = {});

/// Where inputs of a call are [B, S, H, D] slices of one tensor [B, S, width], side by side and in
/// any order, and nothing else is in it: the first column of each, in the order of `inputs`.
struct ColumnPlaces {
  int64_t width = 0;  ///< 0: they are anything else
  std::vector<int64_t> first;
};
ColumnPlaces column_places(const std::vector<at::Tensor>& inputs);

}  // namespace nsa
