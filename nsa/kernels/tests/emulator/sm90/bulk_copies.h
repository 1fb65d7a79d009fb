// Copies of TMA from global to shared memory: bytes are counted at an mbarrier when they land.
#pragma once
#include <cstdint>

#include "nsa/kernels/tests/emulator/sm90/tensor_map.h"

namespace nsa::kernels::emulator {

/// The box of a tensor at `place`; `map`: as encode_tiled made it.
void load_box(const void* map, const void* barrier, void* to, const int (&place)[4]);
/// cp.async.bulk: a multiple of 16 bytes from and to such an address; shared addresses.
void load_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier);

}  // namespace nsa::kernels::emulator
