#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "nsa/config/config.h"
#include "nsa/ops/attention/key_mask.h"

namespace nsa {

/// Why the CPU kernels (nsa/ops/cpu) do not compute a call on q; empty where they do. They take
/// every size and layout.
std::string cpu_kernel_obstacle(const at::Tensor& q);

struct CpuAttention {
  at::Tensor out;        ///< [B, S, Hq, dv], type of q
  at::Tensor lse;        ///< [B, S, Hq] fp32
  at::Tensor block_idx;  ///< [B, S, Hkv, n] int32; undefined where no blocks are selected
  at::Tensor ranges;     ///< [B, S, Hkv, n, 2] int32; undefined likewise
};

/// chunked_attention(q, k, v, mask, scale) by the CPU kernels; `selection` set: the compressed
/// branch with the choice of blocks by that configuration. Differentiable once in q, k, v through
/// out and lse, by the same code (recorded as STAGE.backward with the instruction set); saved are
/// the arguments and two numbers a row.
CpuAttention cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const KeyMask& mask, double scale, const char* stage,
                           const NsaConfig* selection = nullptr);

/// The instruction set that a call made now runs, for the record.
std::string cpu_kernel_detail();

/// What the gradients of one branch are computed from.
struct CpuBackwardInputs {
  at::Tensor q, k, v;  ///< as cpu_attention takes them
  at::Tensor lse;      ///< [B, S, Hq] fp32 of the forward pass
  at::Tensor d_out;    ///< [B, S, Hq, dv]
};
struct CpuGradients {
  at::Tensor q, k, v;
};

/// Gradients of a cpu_attention call outside of a graph. The rounding of `lse` is their one error
/// beyond those of the graph's own backward pass.
CpuGradients cpu_attention_gradients(const CpuBackwardInputs& inputs, const KeyMask& mask,
                                     double scale, const char* stage);

}  // namespace nsa
