// CuTe's file, but for the copy past which zeros are stored.
#pragma once
#define SM80_CP_ASYNC_CACHEALWAYS_ZFILL SM80_CP_ASYNC_CACHEALWAYS_ZFILL_of_device
#include_next <cute/arch/copy_sm80.hpp>
#undef SM80_CP_ASYNC_CACHEALWAYS_ZFILL

#include "nsa/kernels/tests/emulator/emulator.h"

namespace cute {
template <class TS, class TD = TS>
struct SM80_CP_ASYNC_CACHEALWAYS_ZFILL {
  using SRegisters = TS[1];
  using DRegisters = TD[1];
  static void copy(const TS& from, TD& to, bool valid) {
    nsa::kernels::emulator::copy_async(nsa::kernels::emulator::shared_address(&to), &from,
                                      valid ? int(sizeof(TS)) : 0, int(sizeof(TS)));
  }
};
}  // namespace cute
