#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/config/config.h"
#include "nsa/ops/attention/key_mask.h"

/// Attention of the three branches on CPUs without autograd. Common to all functions: q [B, S, Hq,
/// dk], k [B, N, Hkv, dk], v [B, N, Hkv, dv] of one type of fp32, bf16 and fp16, any strides;
/// products, softmax and sums in fp32. A key that a row does not attend has no influence on it, be
/// it NaN or infinite. Results do not depend on the number of threads. Memory beyond the results is
/// linear in the number of keys, and in the number of queries for a bf16 or fp16 output.
namespace nsa::cpu {

struct PanelAttention {
  at::Tensor out;      ///< [B, S, Hq, dv] fp32
  at::Tensor lse;      ///< [B, S, Hq] fp32, natural log; -inf where a row attends nothing
  at::Tensor softmax;  ///< [B, S, Hq, 2] fp32: RowSoftmax of the rows, for the backward pass
};

/// Undefined results of the right shapes, for queries q and values v.
PanelAttention empty_attention(const at::Tensor& q, const at::Tensor& v);

/// softmax(scale * q.k) v over the keys that `mask` allows.
PanelAttention attend_panels(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const KeyMask& mask, double scale);

struct PanelGradients {
  at::Tensor q, k, v;  ///< types and shapes of the arguments
};

/// Gradients of attend_panels; `softmax` of its result. d_out [B, S, Hq, dv] in the type of
/// q; d_lse [B, S, Hq] fp32 may be undefined. Gradients of keys are summed over a number of query
/// ranges that sizes decide, so their bits do not depend on the number of threads.
PanelGradients attend_panels_backward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& softmax, const at::Tensor& d_out,
                                      const at::Tensor& d_lse, const KeyMask& mask, double scale);

struct PanelSelection {
  PanelAttention attention;
  at::Tensor block_idx;  ///< [B, S, Hkv, n] int32, as select_blocks gives
  at::Tensor ranges;     ///< [B, S, Hkv, n, 2] int32, as block_ranges gives
};

/// The compressed branch with the choice of blocks (paper, Eqs. 8 to 12): softmax over the visible
/// blocks, scores of selection blocks, the top n, and their token ranges. k and v hold compressed
/// blocks. Logits and scores exist for one tile of queries a thread.
PanelSelection attend_and_select(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const NsaConfig& config, int64_t first_position, double scale);

}  // namespace nsa::cpu
