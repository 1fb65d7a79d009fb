// Instructions of sm_90 that neither CUTLASS nor sm80/mma.cuh has, as functions.
#pragma once
#include <cstdint>

#include "nsa/kernels/common/mma.cuh"

#ifdef NSA_EMULATED
#include "nsa/kernels/tests/emulator/sm90/instructions_sm90.h"
#endif

namespace nsa::kernels::sm90 {

#ifndef NSA_EMULATED
/// Four 8x8 matrices of 2-byte elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                               uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};\n" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
/// Whether `one` is true in any of a warpgroup's 128 threads; `barrier` is its own.
__device__ __forceinline__ bool any_of_warpgroup(bool one, int barrier) {
  int any;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.b32 p, %1, 0; barrier.cta.red.or.pred.aligned q, %2, 128, p;"
      " selp.b32 %0, 1, 0, q; }\n"
      : "=r"(any)
      : "r"(int(one)), "r"(barrier)
      : "memory");
  return any != 0;
}
/// Two values in a register, `low` in its low half.
__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  uint32_t x;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}
__device__ __forceinline__ uint32_t pack_bfloats(float low, float high) {
  uint32_t x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}
/// pieces + place, computed here and not kept.
__device__ __forceinline__ uint4* piece_anew(uint4* pieces, int place) {
  uint64_t to;
  asm volatile("mad.wide.s32 %0, %1, 16, %2;" : "=l"(to) : "r"(place), "l"(pieces));
  return reinterpret_cast<uint4*>(to);
}
/// A multiple of 16 bytes to shared memory, counted at an mbarrier (both by shared address);
/// `hint`: to the L2 cache.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier, uint64_t hint) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;\n" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(hint)
      : "memory");
}
/// What a bulk copy brought, by a plain load. Before the place is given back for the next copy the
/// thread fences the async proxy: nothing else orders that copy behind the load (PTX ISA, "async
/// proxy").
template <typename V>
__device__ __forceinline__ V load_copied(const V* from) {
  return *from;
}
__device__ __forceinline__ void prefetch_bulk(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(from), "r"(bytes));
}
#endif

}  // namespace nsa::kernels::sm90
