#pragma once
#include <cstddef>

#include "nsa/device/row_attention.h"

/// Torch-free launcher of the selected branch's forward pass in the order of keys: a tile of 64
/// keys is read once for all rows that attend it. `row_attention` reads every row's keys anew.
namespace nsa::device {

/// nullptr when the order of keys has a kernel for these sizes; else why not, for a message.
/// `max_tiles_of_row` as in SelectedBackward.
const char* unsupported_by_keys(const RowAttention& problem, int max_tiles_of_row);

/// Bytes of device memory that a launch works in; any content.
size_t workspace_bytes(const RowAttention& problem, int max_tiles_of_row);

/// The results of row_attention_forward within rounding; sm_90a. A row with more tiles than
/// promised is NaN. `workspace` is 256-byte aligned. No allocation, no synchronisation, capturable.
cudaError_t selected_attention_forward(const RowAttention& problem, int max_tiles_of_row,
                                       void* workspace, cudaStream_t stream);

}  // namespace nsa::device
