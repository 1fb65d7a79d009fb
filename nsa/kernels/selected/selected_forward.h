#pragma once
#include <cstddef>

#include "nsa/kernels/selected/rows/row_attention.h"

/// Torch-free launcher of the selected branch's forward pass by tiles of 64 keys: the first queries
/// in whole causal tiles under masks, the others in the order of keys, where a tile is read once
/// for all rows that attend it. `row_attention` reads every row's keys anew.
namespace nsa::kernels {

/// nullptr when the order of keys has a kernel for these sizes; else why not, for a message.
/// `max_tiles_of_row` as in SelectedBackward.
const char* unsupported_by_keys(const RowAttention& problem, int max_tiles_of_row);

/// How many of the first queries are best computed in whole tiles; the others are computed in the
/// order of keys.
int dense_queries(const RowAttention& problem, int max_tiles_of_row);

/// Whether selected_attention_forward is faster than row_attention_forward, where it has a kernel.
bool prefer_by_keys(const RowAttention& problem, int max_tiles_of_row);

/// Bytes of device memory that a launch works in; any content.
size_t workspace_bytes(const RowAttention& problem, int max_tiles_of_row, int dense);

/// How queries in whole tiles are computed: a CTA takes one tile of rows, or, on all SMs, tile
/// after tile, which is faster where there are many.
enum class WholeTiles { kBySize, kOneOfCta, kManyOfCta };

/// The results of row_attention_forward within rounding; sm_90a. The first `dense` queries in whole
/// tiles: their positions are below kDensePositions, ranges are made of blocks of whole tiles. A
/// row with more tiles than promised, or with other ranges, is NaN. `workspace` is 256-byte
/// aligned. No allocation, no synchronisation, capturable.
cudaError_t selected_attention_forward(const RowAttention& problem, int max_tiles_of_row, int dense,
                                       void* workspace, cudaStream_t stream,
                                       WholeTiles way = WholeTiles::kBySize);

}  // namespace nsa::kernels
