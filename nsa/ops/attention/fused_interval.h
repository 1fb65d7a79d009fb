#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "nsa/config/config.h"
#include "nsa/kernels/interval/interval_backward.h"
#include "nsa/ops/attention/chunked_attention.h"

namespace nsa {

/// Empty where the interval kernel computes chunked_attention(q, k, v, mask) (window or visible
/// blocks), else why not. `choice` set: with the selection of blocks by that configuration.
std::string fused_interval_obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                    const KeyMask& mask, const NsaConfig* choice = nullptr);

struct FusedSelection {
  at::Tensor out;        ///< [B, S, Hq, dv], type of q
  at::Tensor lse;        ///< [B, S, Hq] fp32
  at::Tensor block_idx;  ///< [B, S, Hkv, n] int32, as select_blocks gives; undefined without choice
  at::Tensor ranges;     ///< [B, S, Hkv, n, 2] int32, as block_ranges gives; undefined likewise
};

/// One launch, no host synchronisation, no tensor of scores or probabilities. Differentiable once
/// in q, k, v through out and lse, by kernels too (recorded as STAGE.backward); saved are the
/// arguments, out and lse.
FusedSelection fused_interval_attention(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const KeyMask& mask, double scale,
                                        const char* stage, const NsaConfig* choice = nullptr);

/// Gradients by the kernels, outside of autograd; builds with CUDA code only. `out` and `lse` as
/// the forward pass gave them; d_lse may be undefined. `rows` not null: the statistics of the rows,
/// where they exist already; `out`, `lse` and `d_lse` are not read then.
AttentionGradients fused_interval_backward(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const at::Tensor& out,
                                           const at::Tensor& lse, const at::Tensor& d_out,
                                           const at::Tensor& d_lse, const KeyMask& mask,
                                           double scale,
                                           const kernels::IntervalRows* rows = nullptr);

}  // namespace nsa
