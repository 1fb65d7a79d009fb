#pragma once
#include <cstdint>

#include "nsa/kernels/interval/interval_attention.h"

namespace nsa::kernels {

inline bool aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

/// What copies of 16 bytes and tensor maps ask of a tensor.
inline bool aligned(const Strided& x) {
  return aligned(x.data) && x.batch % 8 == 0 && x.token % 8 == 0 && x.head % 8 == 0;
}

/// Whether 31 bits count the pieces of 16 bytes from a sequence's first row to its others.
inline bool rows_within_reach(const Strided& x, int64_t tokens, int64_t heads) {
  return (tokens * x.token + heads * x.head) / 8 <= INT32_MAX;
}

}  // namespace nsa::kernels
