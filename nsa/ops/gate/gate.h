#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/config/config.h"

namespace nsa {

/// Gates from logits [..., 3] (order cmp, sel, win), in the accumulation type of the logits:
/// sigmoid of each, softmax over the three, or the values themselves. Throws c10::Error by name.
at::Tensor gate_activate(const at::Tensor& logits, GateActivation activation);

/// o = g_cmp*o_cmp + g_sel*o_sel + g_win*o_win (paper, Eq. 5), summed in the accumulation type.
/// o_* [B, S, Hq, dv] of one float type; gates [B, S, Hq, 3], or [B, S, Hkv, 3] for all heads of a
/// group; B may be missing. -> type and shape of o_cmp. Differentiable in all. Throws by name.
at::Tensor gate_combine(const at::Tensor& o_cmp, const at::Tensor& o_sel, const at::Tensor& o_win,
                        const at::Tensor& gates);

/// What gate_combine runs on these: "fused" (one kernel each way) or "plain", for the record.
const char* gate_combine_backend(const at::Tensor& o_cmp, const at::Tensor& gates);

/// Weights of the gate MLP, one module for all groups; H = max(1, floor(dk / 2)).
struct GateWeights {
  at::Tensor w1;  ///< [H, dk]
  at::Tensor b1;  ///< [H]
  at::Tensor w2;  ///< [3, H]
  at::Tensor b2;  ///< [3]
};
/// LibTorch's default for the first linear; xavier-uniform of gain 0.1 and zero bias for the
/// second.
GateWeights make_gate_weights(int64_t qk_head_dim, at::TensorOptions options = {});

/// Gate logits [..., Hkv, 3] in the accumulation type, from the un-rotated q [..., Hq, dk]:
/// group mean -> Linear -> SiLU -> Linear. Differentiable in q and the weights. Throws by name.
at::Tensor gate_mlp(const at::Tensor& q, const GateWeights& weights, int64_t num_kv_heads);

}  // namespace nsa
