#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "nsa/kernels/interval/interval_attention.h"

/// Torch-free launcher of the selected branch's kernel: every (token, KV head) attends the union of
/// a few token ranges of its own.
namespace nsa::kernels {

struct RowAttention {
  Strided q;                        ///< [B, S, Hq, dk]
  Strided k;                        ///< [B, N, Hkv, dk]
  Strided v;                        ///< [B, N, Hkv, dv]
  const int32_t* ranges = nullptr;  ///< [B, S, Hkv, K, 2] contiguous; any order, may overlap
  void* out = nullptr;              ///< [B, S, Hq, dv] contiguous, element type
  float* lse = nullptr;             ///< [B, S, Hq] natural log; -inf for a row without keys
  int batch = 0, num_queries = 0, num_keys = 0, num_heads = 0, num_kv_heads = 0, num_ranges = 0;
  int qk_head_dim = 0, v_head_dim = 0;
  int first_position = 0;  ///< query i stands at position first_position + i
  /// Tokens of the aligned blocks that ranges are made of, cut off at the position; 0: any ranges.
  int block_size = 0;
  float scale = 0;
  Element element = Element::kBFloat16;
};

/// nullptr when a kernel exists for these sizes; else why not, for a message.
const char* unsupported_reason(const RowAttention& problem);

/// Enqueues the forward pass; sm_80 code, runs on sm_90. No allocation, no synchronisation,
/// capturable. `warps_of_row`: 4, or 1 (up to 32 ranges, dv up to 128); 0: the faster.
cudaError_t row_attention_forward(const RowAttention& problem, cudaStream_t stream,
                                  int warps_of_row = 0);

}  // namespace nsa::kernels
