#pragma once
#include <cstddef>

#include "nsa/kernels/interval/interval_attention.h"

/// Torch-free launcher of the backward pass of interval attention (window and compressed branch).
namespace nsa::kernels {

/// What the backward pass reads of every row, where the caller has it already.
struct IntervalRows {
  float* lse = nullptr;    ///< [B, Hkv, S, G] log2 of sum exp; +inf for a row without keys
  float* delta = nullptr;  ///< [B, Hkv, S, G] sum of d_out * out, less d_lse; 0 without keys
  int* bad = nullptr;      ///< 0; 1 where a gradient that is written at once is not finite
};

struct IntervalBackward {
  /// The forward pass: inputs, `out` and `lse` as it wrote them. Its selection is not looked at.
  IntervalAttention forward;
  Strided d_out;                 ///< [B, S, Hq, dv]
  const float* d_lse = nullptr;  ///< [B, S, Hq] contiguous, or null
  IntervalRows rows;             ///< set: `out`, `lse` and `d_lse` are not looked at
  /// Set: d_q holds the gradient of that problem, of the same rows and given `rows`, and gets that
  /// of this one added; rounded once more.
  const IntervalBackward* earlier = nullptr;
  void *d_q = nullptr,        ///< [B, S, Hq, dk] contiguous, element type
      *d_k = nullptr,         ///< [B, N, Hkv, dk]
          *d_v = nullptr;     ///< [B, N, Hkv, dv]
  void* workspace = nullptr;  ///< workspace_bytes(problem), multiple of 16; any content
};

/// nullptr when a kernel exists for these sizes; else why not, for a message.
const char* unsupported_reason(const IntervalBackward& problem);

/// Bytes of workspace: two floats a row, and partial sums where few key tiles would leave SMs idle
/// (at most kMaxPartialBytes). A function of the sizes alone.
size_t workspace_bytes(const IntervalBackward& problem);
constexpr size_t kMaxPartialBytes = size_t{256} << 20;

/// Enqueues the backward pass. Writes every element of d_q, d_k and d_v: a row without keys
/// and a key without rows get 0. No allocation, no synchronisation, no atomics on floats,
/// capturable. A value that is not finite reaches the gradients of rows that attend its token, and
/// of keys such rows attend, only.
cudaError_t interval_attention_backward(const IntervalBackward& problem, cudaStream_t stream);

}  // namespace nsa::kernels
