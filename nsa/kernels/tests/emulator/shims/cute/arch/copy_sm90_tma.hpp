// CuTe's file, but for the load of a box of four axes.
#pragma once
#define SM90_TMA_LOAD_4D SM90_TMA_LOAD_4D_of_device
#include_next <cute/arch/copy_sm90_tma.hpp>
#undef SM90_TMA_LOAD_4D

#include "nsa/kernels/tests/emulator/sm90/bulk_copies.h"

namespace cute {
struct SM90_TMA_LOAD_4D {
  static void copy(const void* map, uint64_t* barrier, uint64_t /*hint*/, void* to, int x, int y,
                   int z, int w) {
    nsa::kernels::emulator::load_box(map, barrier, to, {x, y, z, w});
  }
};
}  // namespace cute
