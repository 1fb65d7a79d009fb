// Values of accumulators whose rows are keys, as the selected branch's backward pass has them, and
// what is not finite in its tiles.
#pragma once
#include <cute/tensor.hpp>

#include "nsa/kernels/selected/sm90/selected_tiles.cuh"

namespace nsa::kernels::sm90 {

/// Value i of the accumulators becomes 0 where bit first + i of `attended` is not set.
template <class Values>
CUTE_DEVICE void select(Values& values, uint32_t attended, int first) {
  CUTE_UNROLL
  for (int i = 0; i < size(values); ++i) values(i) = attended >> (first + i) & 1 ? values(i) : 0.f;
}
/// NaN where a bad key is attended; bits 0 and 8 of `bad` are those of this thread's keys.
template <class Values>
CUTE_DEVICE void spoil(Values& values, uint32_t attended, int first, uint64_t bad) {
  CUTE_UNROLL
  for (int i = 0; i < size(values); ++i)
    if ((attended >> (first + i) & 1) && (bad >> (i / 2 % 2 * 8) & 1)) values(i) = NAN;
}
template <typename Cuda, class Values, class Bits>
CUTE_DEVICE void pack_pairs(const Values& values, Bits& bits, int first) {
  CUTE_UNROLL
  for (int i = 0; i < size(values) / 2; ++i)
    bits(first + i) = portable::pack<Cuda>(values(2 * i), values(2 * i + 1));
}

/// Writes zeros in the place of gathered rows whose statistics are NaN; one warpgroup.
template <int DK, int DV, typename T>
CUTE_DEVICE void clear_bad_rows(T* q, T* d_out, const float2 (&stats)[64], int barrier) {
  const int row = threadIdx.x % 128 / 2;
  if (isnan(stats[row].x)) {
    for (int i = threadIdx.x % 2; i < (DK + DV) / 8; i += 2) {
      const bool of_q = i < DK / 8;
      T* tile = of_q ? q : d_out;
      const int piece = of_q ? i : i - DK / 8, eight = row / 8 * 8 * (of_q ? DK : DV);
      *reinterpret_cast<uint4*>(tile + eight + piece / 8 * 512 + row % 8 * 64 + piece % 8 * 8) =
          make_uint4(0, 0, 0, 0);
    }
  }
  cutlass::arch::fence_view_async_shared();
  cutlass::arch::NamedBarrier::sync(128, barrier);
}

}  // namespace nsa::kernels::sm90
