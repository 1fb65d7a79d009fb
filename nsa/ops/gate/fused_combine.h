#pragma once
#include <ATen/core/Tensor.h>

#include <array>

#include "nsa/config/config.h"
#include "nsa/kernels/tokens/token_kernels.h"

namespace nsa {

/// Whether the kernel adds branches [..., Hq, dv] shaped and typed like `o`: 16-bit on CUDA, dv a
/// multiple of 8; gates or logits in fp32 or in the type of o.
bool combines_by_kernel(const at::Tensor& o, const at::Tensor& gates);

/// gate_combine(o_cmp, o_sel, o_win, gates) in one launch, one for the backward; differentiable
/// once in all. Only where combines_by_kernel, gates in fp32.
at::Tensor combine_by_kernel(const at::Tensor& o_cmp, const at::Tensor& o_sel,
                             const at::Tensor& o_win, const at::Tensor& gates);

/// Branches of a gated sum and the logits of its gates.
struct GatedSum {
  std::array<at::Tensor, 3> branch;  ///< cmp, sel, win: [..., Hq, dv] contiguous
  at::Tensor logits;                 ///< [..., Hq or Hkv, 3] contiguous
  GateActivation activation = GateActivation::kSoftmax;
  /// The sum takes the place of branch[1], and branch[0] and branch[2] keep two of the three
  /// (kernels::Combine::keeps_two). Only with activated gates; the statistics of such a sum make
  /// the third of it again.
  bool keeps_two = false;
  at::Tensor lse_cmp = {};  ///< keeps_two, of gated_sum_by_kernel: [..., Hq] fp32 contiguous
};

struct GatedOutput {
  at::Tensor o;      ///< like a branch; with keeps_two it is branch[1]
  at::Tensor gates;  ///< activated, fp32, shape of the logits
};
/// Activation and sum in one launch, outside of autograd. Only where combines_by_kernel.
GatedOutput gated_sum_by_kernel(const GatedSum& sum);

// Builds with CUDA code only.

struct GatedGradients {
  at::Tensor logits;
  std::array<at::Tensor, 3> branch;
};
/// Gradients in one launch, outside of autograd.
GatedGradients gated_sum_backward(const GatedSum& sum, const at::Tensor& d_o);

/// The gradient of the logits alone, and for every branch the statistics its backward pass reads
/// instead of a gradient of its output; branches [B, S, Hq, dv]. `flags`: three ints that become 0.
at::Tensor gated_sum_statistics(const GatedSum& sum, const at::Tensor& d_o, int64_t num_kv_heads,
                                const std::array<kernels::GatedRows, 3>& rows, int* flags);

}  // namespace nsa
