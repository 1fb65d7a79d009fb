#pragma once
#include <ATen/core/Tensor.h>

namespace nsa {

/// ranges_v2 without argument checks: block_idx [*, Hkv, K > 0] int32, t [*, 1, 1] int64.
at::Tensor vectorised_ranges(const at::Tensor& block_idx, const at::Tensor& t,
                             int64_t sel_block_size);

}  // namespace nsa
