// CuTe's file, but for what orders products of a warpgroup.
#pragma once
#define warpgroup_arrive warpgroup_arrive_of_device
#define warpgroup_wait warpgroup_wait_of_device
#define warpgroup_commit_batch warpgroup_commit_batch_of_device
#include_next <cute/arch/mma_sm90_gmma.hpp>
#undef warpgroup_arrive
#undef warpgroup_wait
#undef warpgroup_commit_batch

#include "nsa/kernels/tests/emulator/sm90/wgmma.h"

namespace cute {
inline void warpgroup_arrive() { nsa::kernels::emulator::fence_products(); }
inline void warpgroup_commit_batch() { nsa::kernels::emulator::commit_products(); }
template <int kPending>
void warpgroup_wait() {
  static_assert(kPending >= 0 && kPending <= 7);
  nsa::kernels::emulator::wait_products(kPending);
}
}  // namespace cute
