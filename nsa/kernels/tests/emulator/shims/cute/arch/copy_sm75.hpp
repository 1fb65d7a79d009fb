// CuTe's file, but for the load of four matrices.
#pragma once
#define SM75_U32x4_LDSM_N SM75_U32x4_LDSM_N_of_device
#include_next <cute/arch/copy_sm75.hpp>
#undef SM75_U32x4_LDSM_N

#include "nsa/kernels/tests/emulator/instructions.h"

namespace cute {
struct SM75_U32x4_LDSM_N {
  using SRegisters = uint128_t[1];
  using DRegisters = uint32_t[4];
  static void copy(const uint128_t& from, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
    uint32_t to[4];
    nsa::kernels::portable::load_matrices(to, nsa::kernels::emulator::shared_address(&from));
    a = to[0], b = to[1], c = to[2], d = to[3];
  }
};
}  // namespace cute
