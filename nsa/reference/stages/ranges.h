#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "nsa/reference/tensor.h"

namespace nsa::reference {

/// Ids of one row -> K half-open token intervals as K pairs (begin, end), unused places (0,0).
/// Walk left to right; keep j iff j >= 0, j*l' <= t and j > the last id kept; a kept id equal to
/// last kept + 1 extends the interval; the end is clamped to t+1. A dropped id has no other effect.
std::vector<int32_t> ranges_row(std::span<const int32_t> ids, int64_t sel_block_size, int64_t t);

/// block_idx [B,S,Hkv,K], K >= 0 -> ranges [B,S,Hkv,K,2].
Tensor<int32_t> ranges(const Tensor<int32_t>& block_idx, int64_t sel_block_size);

}  // namespace nsa::reference
