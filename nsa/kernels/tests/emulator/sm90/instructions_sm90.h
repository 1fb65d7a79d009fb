// The instructions of sm90/instructions.cuh, emulated.
#pragma once
#include "nsa/kernels/tests/emulator/instructions.h"
#include "nsa/kernels/tests/emulator/sm90/bulk_copies.h"

namespace nsa::kernels::sm90 {

inline void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  struct Own {
    uint32_t address, values[4];
  } own{address, {a, b, c, d}};
  emulator::shared_at(address, 16, "stmatrix");
  emulator::meet("stmatrix", ~0u, &own, [](void* const(&lanes)[32], uint32_t) {
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int i = 0; i < 32; ++i) {
        const uint32_t row = static_cast<const Own*>(lanes[matrix * 8 + i / 4])->address;
        std::memcpy(emulator::shared_at(row, 16, "stmatrix") + i % 4 * 4,
                    &static_cast<const Own*>(lanes[i])->values[matrix], 4);
      }
  });
}
inline bool any_of_warpgroup(bool one, int barrier) {
  return emulator::barrier(barrier, 128, one) != 0;
}
inline uint32_t pack_halves(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
inline uint32_t pack_bfloats(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
inline uint4* piece_anew(uint4* pieces, int place) { return pieces + place; }
inline void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, uint64_t) {
  emulator::load_bytes(to, from, bytes, barrier);
}
template <typename V>
V load_copied(const V* from) {
  emulator::begin_load(emulator::shared_address(from) & ~15u);
  return *from;
}
inline void prefetch_bulk(const void* from, uint32_t bytes) {
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    emulator::fail("a prefetch of %u bytes from %p", bytes, from);
}

}  // namespace nsa::kernels::sm90
