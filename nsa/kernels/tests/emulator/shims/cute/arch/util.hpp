// CuTe's file, but for shared addresses.
#pragma once
#define cast_smem_ptr_to_uint cast_smem_ptr_to_uint_of_device
#include_next <cute/arch/util.hpp>
#undef cast_smem_ptr_to_uint

#include "nsa/kernels/tests/emulator/emulator.h"

namespace cute {
inline uint32_t cast_smem_ptr_to_uint(const void* p) {
  return nsa::kernels::emulator::shared_address(p);
}
}  // namespace cute
