#pragma once
#include <cstdint>

namespace nsa::kernels::sm90 {

/// The tiles of 64 keys that a token range meets below `limit`; whether it is made of whole tiles,
/// of which the last one may end at the limit.
struct RangeTiles {
  int first = 0, last = -1;
  bool whole = true;

  __device__ __forceinline__ RangeTiles(int2 range, int limit) {
    const int begin = max(range.x, 0), end = min(range.y, limit);
    if (end <= begin) return;
    first = begin / 64, last = (end - 1) / 64;
    whole = begin % 64 == 0 && (end % 64 == 0 || end == limit);
  }
  /// As bits of a word: tile 0 is bit 0, tile base + i from `newest` on is bit i + 1.
  __device__ __forceinline__ uint64_t bits(int newest = 1, int base = 1) const {
    const int low = max(first, newest) - base, high = last - base;
    const uint64_t later = high < low ? 0 : (~0ull << (low + 1)) & (~0ull >> (62 - high));
    return later | (first == 0 && last >= 0 ? 1 : 0);
  }
};

}  // namespace nsa::kernels::sm90
