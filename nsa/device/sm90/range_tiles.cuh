#pragma once
#include <cstdint>

namespace nsa::device::sm90 {

/// The tiles of 64 keys that a token range meets below `limit`, as bits; whether it is made of
/// whole tiles, of which the last one may end at the limit.
struct RangeTiles {
  uint64_t bits = 0;
  bool whole = true;

  __device__ __forceinline__ RangeTiles(int2 range, int limit) {
    const int begin = max(range.x, 0), end = min(range.y, limit);
    if (end <= begin) return;
    bits = (~0ull << begin / 64) & (~0ull >> (63 - (end - 1) / 64));
    whole = begin % 64 == 0 && (end % 64 == 0 || end == limit);
  }
};

}  // namespace nsa::device::sm90
