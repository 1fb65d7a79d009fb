#pragma once
#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// Gate MLP, one for all groups: Linear(dk, hidden), SiLU, Linear(hidden, 3).
struct GateMlpWeights {
  Tensor<double> w1, b1;  ///< [hidden,dk], [hidden]
  Tensor<double> w2, b2;  ///< [3,hidden], [3]
};

/// q [B,S,Hq,dk] un-rotated -> mean over the heads of each group -> MLP -> logits [B,S,Hkv,3].
Tensor<double> gate_logits(const Tensor<double>& q, int64_t num_kv_heads,
                           const GateMlpWeights& weights);

/// Gradients of `gate_logits` for d_logits [B,S,Hkv,3].
struct GateMlpGradients {
  Tensor<double> q;
  GateMlpWeights weights;
};
GateMlpGradients gate_logits_backward(const Tensor<double>& q, int64_t num_kv_heads,
                                      const GateMlpWeights& weights,
                                      const Tensor<double>& d_logits);

}  // namespace nsa::reference
