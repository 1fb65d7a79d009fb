#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

#include "nsa/ops/common/check.h"

namespace nsa {

/// Stands for an unused place while ids are sorted: it sorts behind every id.
inline constexpr int32_t kUnusedPlace = std::numeric_limits<int32_t>::max();

/// Checks that t is int64 and broadcastable to the axes of `rows` [*, Hkv, K] before Hkv; returns
/// it as [*, 1, 1], ready to meet `rows`.
at::Tensor row_positions(const ArgumentCheck& check, const at::Tensor& t, const char* rows_name,
                         const at::Tensor& rows);

/// Block ids that a caller gave, as the set they stand for.
struct BlockSet {
  at::Tensor block_idx;  ///< [*, Hkv, n] int32: ascending, each once, unused places -1 at the end
  at::Tensor outside;    ///< as count_outside
};

/// A block_idx that a caller gives may be int32 or int64.
void check_ids_type(const ArgumentCheck& check, const at::Tensor& block_idx);

/// The ids of block_idx [*, Hkv, n], int32 or int64, in any order, that lie in 0..floor(t / l');
/// t int64, broadcastable to [*]. No host synchronisation.
BlockSet block_set(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size);

/// How many ids [*, Hkv, n] are neither -1 nor in 0..floor(t / l'): an int64 scalar on the device;
/// t int64, broadcastable to [*].
at::Tensor count_outside(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size);

}  // namespace nsa
