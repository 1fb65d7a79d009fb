#pragma once
#include <cstdint>

namespace nsa::kernels::emulator {

/// The order in which blocks, warps and lanes run from now on, when async copies land and when
/// products of warpgroups are computed.
/// 0: ascending; copies land when their group is waited for or, where an mbarrier waits for them,
/// when no thread can go on; products are computed when they are issued.
/// 1: descending; copies land at once, products are computed when they are waited for, and a thread
/// whose arrival completes an mbarrier phase yields to the waiting thread.
/// Others: random orders; copies of groups late if even, early if odd; all else is drawn.
void set_order(uint64_t seed);

/// Whether tests repeat a case in other orders: not in instrumented code, which takes several times
/// as long and looks for addresses, the same in every order.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kOtherOrders = false;
#else
constexpr bool kOtherOrders = true;
#endif

}  // namespace nsa::kernels::emulator
