#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace nsa {

/// Which conversion of block ids to token intervals runs; all agree bit for bit on every input.
enum class RangesVersion { kV1, kV1Bulk, kV2 };
/// "v1", "v1_bulk", "v2".
std::string to_string(RangesVersion version);

/// Half-open token intervals of selected blocks (docs/semantics.md, Ranges). The ids of a row
/// are walked left to right; j is kept iff j >= 0, j*l' <= t and j > the last id kept; an id equal
/// to last kept + 1 extends the interval, the end of an interval is clamped to t + 1.
///   block_idx [*, Hkv, K] int32, any values, K may be 0; t int64, broadcastable to [*], >= 0,
///   t + l' < 2^31  ->  ranges [*, Hkv, K, 2] int32, contiguous, unused places (0, 0).
/// Throws c10::Error by name.
///
/// v1: a loop over rows that fetches one row per host synchronisation (history's cost on CUDA).
at::Tensor ranges_v1(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size);
/// v1_bulk: one copy to the host, the loop there, one copy back.
at::Tensor ranges_v1_bulk(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size);
/// v2: vectorised tensor operations, no host synchronisation, any device.
at::Tensor ranges_v2(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size);
/// The one that `version` names.
at::Tensor block_ranges(RangesVersion version, const at::Tensor& block_idx, const at::Tensor& t,
                        int64_t sel_block_size);

}  // namespace nsa
