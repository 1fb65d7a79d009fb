#pragma once
#include <ATen/core/Tensor.h>

#include "nsa/core/check.h"

namespace nsa {

/// Checks that t is int64 and broadcastable to the axes of `rows` [*, Hkv, K] before Hkv; returns
/// it as [*, 1, 1], ready to meet `rows`.
at::Tensor row_positions(const ArgumentCheck& check, const at::Tensor& t, const char* rows_name,
                         const at::Tensor& rows);

}  // namespace nsa
