// CUTLASS's file, but for what asks for the running thread.
#pragma once
#define canonical_warp_group_idx canonical_warp_group_idx_of_device
#include_next <cutlass/cutlass.h>
#undef canonical_warp_group_idx

namespace cutlass {
inline int canonical_warp_group_idx() {
  return static_cast<int>(__shfl_sync(~0u, threadIdx.x / 128, 0));
}
}  // namespace cutlass
