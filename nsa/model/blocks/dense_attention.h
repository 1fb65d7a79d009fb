#pragma once
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "nsa/config/config.h"
#include "nsa/config/projection_config.h"
#include "nsa/diagnostics/run_record.h"

namespace nsa {

/// Dense causal attention with RoPE, the counterpart that a sparse layer is compared with: the
/// window branch alone, as long as the row, its gate 1. Parameters, without bias, carry the names
/// they have in NsaAttention and are drawn as there, so that one seed gives both the same weights:
/// w_q [Hq*dk, dim]; w_k_win [Hkv*dk, dim]; w_v_win [Hkv*dv, dim] (w_k and w_v where they are
/// shared); w_o [dim, Hq*dv].
class DenseAttentionImpl : public torch::nn::Module {
 public:
  /// Of `config`, heads, dims and RoPE count; the rest decides only what is drawn and dropped.
  DenseAttentionImpl(int64_t dim, const NsaConfig& config,
                     const ProjectionConfig& projections = {});

  struct Outputs {
    at::Tensor y;         ///< [B, S, dim]
    at::Tensor o;         ///< [B, S, Hq, dv], before the output projection
    RunRecordPtr record;  ///< stage dense_attn: flash, sdpa or plain
  };
  /// x [B, S, dim]. The library's flash attention on CUDA where it applies, its CPU attention on a
  /// CPU, else the plain window operator. Deterministic. What the library computes multiplies
  /// masked values by 0: a NaN reaches every row.
  Outputs forward(const at::Tensor& x);

 private:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

  NsaConfig config_;
  at::Tensor w_q_, w_k_, w_v_, w_o_;
};
TORCH_MODULE(DenseAttention);

}  // namespace nsa
