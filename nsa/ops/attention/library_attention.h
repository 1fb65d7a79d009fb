#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "nsa/ops/attention/key_mask.h"

namespace nsa {

// The library's fused attention (flash, cuDNN) behind one vocabulary. Every call is written to the
// SDPA audit of the current record. Nothing here has a gradient of its own.

/// Empty where the library's flash attention takes q, k, v [.., H, D]; else why not. It needs CUDA,
/// half or bfloat16, dk == dv <= 256 and a multiple of 8. Under a mask it needs finite values too:
/// masked places are multiplied by 0, so that a NaN of the future would reach every row.
std::string flash_obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
/// The same for cuDNN attention, whose mask is causal: finite values (reading them synchronises
/// with the device) and dims up to 128.
std::string cudnn_obstacle(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

/// Whether every value of all three is finite. Synchronises with the device.
bool all_finite(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

struct LibraryOutputs {
  at::Tensor out;  ///< shape of q with dv
  at::Tensor lse;  ///< [B, S, H] fp32; packed: [H, T]
};
struct LibraryGradients {
  at::Tensor q, k, v;
};

/// Sequences one behind the other: q [Tq, H, D], k and v [Tk, Hkv, D]; each query sees all keys of
/// its sequence.
struct PackedSequences {
  at::Tensor q, k, v;
  at::Tensor cu_q, cu_k;             ///< int32 [sequences + 1]
  std::optional<at::Tensor> used_k;  ///< int32 [sequences]: how many keys count; all, unless given
  int64_t max_q = 0, max_k = 0;
  double scale = 0.0;
};
/// A query without keys, or whose logits are all -inf or one of them +inf, gives NaN.
LibraryOutputs flash_packed_forward(const PackedSequences& x);
/// Deterministic. `out` and `lse` are those of the forward pass.
LibraryGradients flash_packed_backward(const PackedSequences& x, const at::Tensor& d_out,
                                       const at::Tensor& out, const at::Tensor& lse);

/// q [B, S, Hq, D], k and v [B, N, Hkv, D]: query i sees the keys in
/// [N - S + i - window + 1, N - S + i].
struct WindowedQueries {
  at::Tensor q, k, v;
  int64_t window = 0;
  double scale = 0.0;
};
LibraryOutputs flash_window_forward(const WindowedQueries& x);
/// Deterministic. `out` and `lse` are those of the forward pass.
LibraryGradients flash_window_backward(const WindowedQueries& x, const at::Tensor& d_out,
                                       const at::Tensor& out, const at::Tensor& lse);
/// cuDNN has no window here: S == N and window >= N, so that the mask is causal.
LibraryOutputs cudnn_causal_forward(const WindowedQueries& x);

}  // namespace nsa
