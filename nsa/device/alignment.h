#pragma once
#include <cstdint>

#include "nsa/device/interval_attention.h"

namespace nsa::device {

/// What copies of 16 bytes and tensor maps ask of a tensor.
inline bool aligned(const Strided& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.batch % 8 == 0 && x.token % 8 == 0 &&
         x.head % 8 == 0;
}

}  // namespace nsa::device
