#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "nsa/kernels/interval/interval_backward.h"

/// Torch-free launcher of the selected branch's backward pass: the first queries in whole causal
/// tiles under masks, the others in the order of keys, where a tile of 64 keys stays on chip while
/// the rows that attend it pass by (docs: README of this folder).
namespace nsa::kernels {

/// Gradients of q from the other branches, added where the parts of this one are summed: sum of
/// parts + terms, turned back, in fp32 and rounded once. Of queries from `dense` on.
struct JoinedQueries {
  const void* terms[2] = {};        ///< [B, S, Hq, dk] contiguous, element type; or null
  void* out = nullptr;              ///< [B, S, Hq, dk], heads side by side; null: d_q as it is
  int64_t out_stride = 0;           ///< elements from token to token
  const float2* cos_sin = nullptr;  ///< (cos, sin) of the rotation, [>= S, dk / 2]; or null
};

/// The window branch where it has the same q, k, v, scale and d_out: its gradients of the queries
/// that go in whole tiles are added to those of this branch, pair by pair, so that both share all
/// products.
struct JoinedWindow {
  /// Below it a tile of rows that the window begins in would hold its last tokens, too.
  static constexpr int kLeast = 256;
  int size = 0;       ///< tokens, kLeast at least; 0: no branch joins
  IntervalRows rows;  ///< lse and delta of its rows
};

struct SelectedBackward {
  Strided q;                        ///< [B, S, Hq, dk]
  Strided k;                        ///< [B, N, Hkv, dk]
  Strided v;                        ///< [B, N, Hkv, dv]
  Strided d_out;                    ///< [B, S, Hq, dv]
  const int32_t* ranges = nullptr;  ///< [B, S, Hkv, K, 2] contiguous; any order, may overlap
  const void* out = nullptr;        ///< [B, S, Hq, dv] contiguous, of the forward pass
  const float* lse = nullptr;       ///< [B, S, Hq] natural log, of the forward pass
  const float* d_lse = nullptr;     ///< [B, S, Hq], or null: no gradient of lse
  /// [B, S, Hq] pairs: lse in base 2 (NaN where it or d_out of the row is not finite), and the sum
  /// of d_out * out less d_lse; null: made from out, lse and d_lse, which are not looked at else.
  const float* stats = nullptr;
  void* d_q = nullptr;   ///< like q, contiguous, element type
  JoinedWindow window;   ///< of the first `dense` queries
  JoinedQueries joined;  ///< where joined.out is, d_q is written for the first `dense` queries only
  void* d_k = nullptr;   ///< like k, contiguous, element type
  void* d_v = nullptr;   ///< like v, contiguous, element type
  int batch = 0, num_queries = 0, num_keys = 0, num_heads = 0, num_kv_heads = 0, num_ranges = 0;
  int qk_head_dim = 0, v_head_dim = 0;
  int first_position = 0;  ///< query i stands at position first_position + i
  /// No row's ranges meet more aligned tiles of 64 keys than this; memory is linear in it. A row
  /// that breaks the promise gets a d_q of NaN.
  int max_tiles_of_row = 0;
  /// Tokens of the aligned blocks that ranges are made of, cut off at the position; 0: any ranges.
  int block_size = 0;
  /// How many of the first queries go in whole tiles, all below kDenseBackwardPositions; their
  /// ranges are made of blocks of whole tiles, and a row with others gets a d_q of NaN. 0 for the
  /// code of sm_80.
  int dense = 0;
  float scale = 0;
  Element element = Element::kBFloat16;
  Code code = Code::kSm90;
};

/// nullptr when a kernel exists for these sizes; else why not, for a message.
const char* unsupported_reason(const SelectedBackward& problem);

/// How many of the first queries are best computed in whole tiles; the others are computed in the
/// order of keys.
int dense_queries(const SelectedBackward& problem);

/// Bytes of device memory that a launch of `problem` works in; any content.
size_t workspace_bytes(const SelectedBackward& problem);

/// Enqueues the backward pass. `workspace` is 256-byte aligned. No allocation, no
/// synchronisation, capturable; the same bits every time. Keys that no row attends get zeros.
cudaError_t selected_attention_backward(const SelectedBackward& problem, void* workspace,
                                        cudaStream_t stream);

}  // namespace nsa::kernels
