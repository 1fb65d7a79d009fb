#pragma once
#include "nsa/kernels/selected/rows/row_attention.h"

/// One function per instantiation of the selected branch in whole tiles under masks:
/// selected_dense_DK_DV_(type).
namespace nsa::kernels::sm90 {

/// Parts of the rows' outputs from the order of keys, of one set of a plan, to be joined with.
struct DenseParts {
  const void* parts = nullptr;
  const float2* stats = nullptr;
  const int32_t* row_counts = nullptr;
  int max_tiles = 0, tokens_of_set = 0;
};

/// The queries of a launch: [first, first + count) of `heads` (sequence, KV head) pairs from
/// `first_head` on. Their tiles: all of them, or, when there are parts, those of first_dense_tile.
struct DenseQueries {
  int first = 0, count = 0, first_head = 0, heads = 0;
  int tokens_of_batch = 0;  // from one sequence to the next in ranges, out and lse
  DenseParts parts;
};

using SelectedDenseLaunch = cudaError_t (*)(const RowAttention&, const DenseQueries&, cudaStream_t);

#define NSA_DECLARE_DENSE(dims)                                                      \
  cudaError_t selected_dense_##dims##_bf16(const RowAttention&, const DenseQueries&, \
                                           cudaStream_t);                            \
  cudaError_t selected_dense_##dims##_fp16(const RowAttention&, const DenseQueries&, cudaStream_t)
NSA_DECLARE_DENSE(64_64);
NSA_DECLARE_DENSE(128_128);
NSA_DECLARE_DENSE(192_128);
#undef NSA_DECLARE_DENSE

}  // namespace nsa::kernels::sm90
