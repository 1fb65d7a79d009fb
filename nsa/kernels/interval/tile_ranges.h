#pragma once
#include "nsa/kernels/interval/interval_attention.h"

namespace nsa::kernels {

/// Of the keys that a rule without a window allows, only those of a token's ranges, which are whole
/// tiles of 64 keys (the last one may end at the position). Other ranges make their rows NaN.
struct TileRanges {
  static constexpr int kPositions = 4096;  ///< positions are below this
  const int32_t* ranges = nullptr;         ///< [B, tokens_of_batch, Hkv, K, 2]; null: no such limit
  int num_ranges = 0;
  int tokens_of_batch = 0;  ///< also from one sequence to the next in out and lse
};

/// Interval attention (stride 1, extent 1, no selection of blocks) within ranges.
cudaError_t tile_attention_forward(const IntervalAttention& problem, const TileRanges& tiles,
                                   cudaStream_t stream);

}  // namespace nsa::kernels
