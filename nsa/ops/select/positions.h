#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/ops/common/check.h"

namespace nsa {

/// Checks that t is int64 and broadcastable to the axes of `rows` [*, Hkv, K] before Hkv; returns
/// it as [*, 1, 1], ready to meet `rows`.
at::Tensor row_positions(const ArgumentCheck& check, const at::Tensor& t, const char* rows_name,
                         const at::Tensor& rows);

/// How many ids [*, Hkv, n] are neither -1 nor in 0..floor(t / l'): an int64 scalar on the device;
/// t int64, broadcastable to [*].
at::Tensor count_outside(const at::Tensor& block_idx, const at::Tensor& t, int64_t sel_block_size);

}  // namespace nsa
