#pragma once
#include "nsa/backend/kernel_choice.h"
#include "nsa/kernels/interval/interval_backward.h"
#include "nsa/ops/selected/row_method.h"

namespace nsa {

/// The backends of sel_attn, one file each; arguments are checked. Each writes what it runs to the
/// current record, `strict` makes a request that is not honoured an error.
SelAttnResult sel_attn_gather(const SelAttnArgs& args);
SelAttnResult sel_attn_masked(const SelAttnArgs& args);
/// `safe` false: the workspace variant, which has no gradient; under autograd the safe one runs.
SelAttnResult sel_attn_packed(const SelAttnArgs& args, bool safe, bool strict);
/// The library's packed flash attention where it applies, else reductions over segments.
SelAttnResult sel_attn_varlen(const SelAttnArgs& args);
/// The project's CUDA kernel where it applies, else gather.
SelAttnResult sel_attn_fused(const SelAttnArgs& args, bool strict);

/// What runs for a call of backend fused; a question of sizes, type and device.
struct SelectedKernels {
  KernelChoice forward;   ///< in the order of rows, which sizes of all orders go by
  bool by_keys = false;   ///< the forward pass goes in the order of keys instead
  KernelChoice backward;  ///< without one: that of gather
  /// Empty where kernels compute both passes.
  const std::string& obstacle() const;
};
SelectedKernels choose_selected_kernels(const SelAttnArgs& args);
/// The same for a call of sel_attn_fused, which splits groups that are too large for a kernel.
SelectedKernels choose_split_kernels(const SelAttnArgs& args);

/// Gradients of q from other branches that join this one's where its parts are summed.
struct JoinedGradient {
  std::vector<at::Tensor> terms;  ///< [B, S, Hq, dk], two at most
  at::Tensor out;                 ///< [B, S, Hq, dk], heads side by side: their sum
  at::Tensor cos_sin;  ///< table of the rotation that is taken back from the sum, or undefined
};
/// The first query whose gradients are joined; those before it are left to the caller: all, S,
/// where heads are padded.
int64_t sel_attn_first_joined(const SelAttnArgs& args, KernelCode code);

/// How many of the first queries have their gradients of the branch of args.window computed here.
int64_t sel_attn_window_queries(const SelAttnArgs& args, KernelCode code);

/// Bytes of device memory that the backward pass of a whole call works in, of whose arguments
/// sizes, type and device are looked at; 0 where no kernel computes it.
int64_t sel_attn_backward_workspace(const SelAttnArgs& sizes);

/// {out, lse} by the kernels, outside of autograd; builds with CUDA code only.
SelAttnResult sel_attn_fused_forward(const SelAttnArgs& args, const SelectedKernels& chosen);

/// {d_q, d_k, d_v} by the kernels, outside of autograd; `code` is that of
/// SelectedKernels::backward, which runs. `stats` is null, or [B, S, Hq] pairs as
/// kernels::SelectedBackward::stats, and then out and lse are not read. `joined`: null, or d_q of
/// queries from sel_attn_first_joined on goes there, not to d_q, which has the queries before it
/// alone where B is 1. `window`: rows of the branch of args.window, or null.
std::vector<at::Tensor> sel_attn_fused_backward(const SelAttnArgs& args, KernelCode code,
                                                const at::Tensor& d_out, const at::Tensor& out,
                                                const at::Tensor& lse, const float* stats,
                                                const JoinedGradient* joined = nullptr,
                                                const kernels::IntervalRows* window = nullptr);

}  // namespace nsa
