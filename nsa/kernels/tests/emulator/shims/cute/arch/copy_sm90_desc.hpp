// CuTe's file, but for a hint to the cache.
#pragma once
#define prefetch_tma_descriptor prefetch_tma_descriptor_of_device
#include_next <cute/arch/copy_sm90_desc.hpp>
#undef prefetch_tma_descriptor

#include "nsa/kernels/tests/emulator/sm90/tensor_map.h"

namespace cute {
inline void prefetch_tma_descriptor(const void* map) { nsa::kernels::emulator::map_of(map); }
}  // namespace cute
