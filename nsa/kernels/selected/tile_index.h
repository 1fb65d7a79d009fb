#pragma once
#include <cuda_runtime_api.h>

#include "nsa/kernels/selected/selected_plan.h"

/// The inverse index of the selected branch: for every tile of 64 keys the rows that attend it,
/// ascending by token, and the work items made of these lists.
namespace nsa::kernels::portable {

/// Token ranges [B, S, Hkv, K, 2] and what they refer to.
struct TokenRanges {
  const int32_t* ranges;
  int num_queries, num_keys, num_kv_heads, num_ranges, first_position;
  int tokens_of_batch;       // from one sequence's ranges to the next's
  bool without_dense_tiles;  // those of first_dense_tile are not listed
};
template <class Problem>
TokenRanges token_ranges(const Problem& p, int tokens_of_batch, bool without_dense_tiles = false) {
  return {p.ranges,     p.num_queries,    p.num_keys,      p.num_kv_heads,
          p.num_ranges, p.first_position, tokens_of_batch, without_dense_tiles};
}

/// Fills counts, offsets, row_tiles, row_masks, row_counts, entries, items and first_item of the
/// workspace and sets next_items to 0; any content before.
cudaError_t build_tile_index(const TokenRanges& p, const SelectedPlan& plan, void* workspace,
                             cudaStream_t stream);

}  // namespace nsa::kernels::portable
