#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/ops/gate/gate.h"

/// The gate MLP as one kernel forward and two backward, outside of autograd.
namespace nsa {

/// Whether the kernels take these: q 16-bit [N, Hq, dk] on CUDA, dk a multiple of 8 up to 128, the
/// heads of a token side by side, tokens any multiple of 8 elements apart; fp32 weights.
bool gates_by_kernel(const at::Tensor& q, const GateWeights& weights);

/// gate_mlp: fp32 [N, Hkv, 3].
at::Tensor gate_mlp_by_kernel(const at::Tensor& q, const GateWeights& weights,
                              int64_t num_kv_heads);

/// Gradients of the weights, from d_logits fp32 [N, Hkv, 3]; that of q is added to d_q [N, Hq, dk],
/// laid out as q may be, with one rounding of the sum. The same bits in every run.
GateWeights gate_mlp_backward_by_kernel(const at::Tensor& q, const GateWeights& weights,
                                        const at::Tensor& d_logits, const at::Tensor& d_q);

}  // namespace nsa
