// Values of accumulators whose rows are keys, as the selected branch's backward pass has them.
#pragma once
#include <cute/tensor.hpp>

#include "nsa/device/sm80/mma.cuh"

namespace nsa::device::sm90 {

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
    bits(first + i) = sm80::pack<Cuda>(values(2 * i), values(2 * i + 1));
}

}  // namespace nsa::device::sm90
