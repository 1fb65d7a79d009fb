// Stands for CUTLASS's file of this name: named barriers, mbarriers and fences, emulated.
#pragma once
#include <cutlass/cutlass.h>

#include "nsa/kernels/tests/emulator/async_memory.h"
#include "nsa/kernels/tests/emulator/emulator.h"
#include "nsa/kernels/tests/emulator/sm90/mbarrier.h"

namespace cutlass::arch {

/// CUTLASS keeps the first eight of the sixteen for itself.
struct NamedBarrier {
  static constexpr uint32_t ReservedNamedBarrierCount = 8;
  static void sync(uint32_t threads, uint32_t barrier) {
    nsa::kernels::emulator::barrier(static_cast<int>(barrier + ReservedNamedBarrierCount),
                                    static_cast<int>(threads));
  }
  static void arrive(uint32_t threads, uint32_t barrier) {
    nsa::kernels::emulator::arrive_at_barrier(static_cast<int>(barrier + ReservedNamedBarrierCount),
                                              static_cast<int>(threads));
  }
};

struct ClusterBarrier {
  using ValueType = uint64_t;
  static void init(const uint64_t* barrier, uint32_t arrivals) {
    nsa::kernels::emulator::begin_mbarrier(barrier, arrivals);
  }
  static void arrive(const uint64_t* barrier) {
    nsa::kernels::emulator::arrive_at_mbarrier(barrier);
  }
  static void wait(const uint64_t* barrier, uint32_t phase) {
    nsa::kernels::emulator::wait_for_phase(barrier, phase);
  }
};
struct ClusterTransactionBarrier : ClusterBarrier {
  static void arrive_and_expect_tx(const uint64_t* barrier, uint32_t bytes) {
    nsa::kernels::emulator::arrive_at_mbarrier(barrier, bytes);
  }
};

inline void fence_barrier_init() {}
inline void fence_view_async_shared() { nsa::kernels::emulator::fence_async(); }
inline void cpasync_barrier_arrive_noinc(const uint64_t* barrier) {
  nsa::kernels::emulator::arrive_with_copies(barrier);
}

}  // namespace cutlass::arch
