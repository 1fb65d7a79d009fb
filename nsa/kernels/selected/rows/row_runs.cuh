// The ranges of one row as disjoint ascending runs of keys.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace nsa::kernels::portable {

/// Sum (or maximum) over the lanes up to and including this one; `combine` is associative.
template <class Combine>
__device__ __forceinline__ int scan_lanes(int value, const Combine& combine) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(~0u, value, step);
    if (lane >= step) value = combine(value, before);
  }
  return value;
}
__device__ __forceinline__ int sum_of_lanes(int value) {
  return scan_lanes(value, [](int x, int y) { return x + y; });
}
__device__ __forceinline__ int most_of_lanes(int value) {
  return scan_lanes(value, [](int x, int y) { return max(x, y); });
}

/// Run 32 h + lane is element h of a lane; empty runs stand at the end. One warp; kHalves: 1 for
/// up to 32 ranges, 2 for up to 64.
template <int kHalves>
struct RowRuns {
  int start[kHalves], end[kHalves];

  /// From ranges in any order, which may overlap; keys from `limit` on are not attended.
  __device__ static RowRuns of(const int2* ranges, int num_ranges, int limit) {
    const int lane = threadIdx.x % 32;
    int2 own[kHalves], sorted[kHalves];
    int rank[kHalves] = {};
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      own[h] = clipped(ranges, h * 32 + lane, num_ranges, limit);
      sorted[h] = make_int2(INT32_MAX, INT32_MAX);
    }
    // Sort by start; places break ties.
#pragma unroll
    for (int from = 0; from < kHalves; ++from)
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int other = __shfl_sync(~0u, own[from].x, i), place = from * 32 + i;
#pragma unroll
        for (int h = 0; h < kHalves; ++h)
          rank[h] += other < own[h].x || (other == own[h].x && place < h * 32 + lane) ? 1 : 0;
      }
#pragma unroll
    for (int from = 0; from < kHalves; ++from)
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int to = __shfl_sync(~0u, rank[from], i), x = __shfl_sync(~0u, own[from].x, i),
                  y = __shfl_sync(~0u, own[from].y, i);
#pragma unroll
        for (int h = 0; h < kHalves; ++h)
          if (to == h * 32 + lane) sorted[h] = make_int2(x, y);
      }
    return joined(sorted);
  }

  /// The same where ranges are disjoint and ascending already, as those of chosen blocks, and are
  /// only cut off; whether they are.
  __device__ bool take_ordered(const int2* ranges, int num_ranges, int limit) {
    const int lane = threadIdx.x % 32;
    int reached = 0;  // by the ranges of the half before
    bool ordered = true;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int2 own = clipped(ranges, h * 32 + lane, num_ranges, limit);
      const int end_of_left = __shfl_up_sync(~0u, own.y, 1);
      ordered &= own.x >= (lane == 0 ? reached : end_of_left);
      reached = __shfl_sync(~0u, own.y, 31);
      start[h] = own.x, end[h] = own.y;
    }
    return __all_sync(~0u, ordered);
  }

 private:
  __device__ static int2 clipped(const int2* ranges, int i, int num_ranges, int limit) {
    int2 own = i < num_ranges ? ranges[i] : make_int2(0, 0);
    own.x = max(own.x, 0);
    own.y = min(own.y, limit);
    return own.y <= own.x ? make_int2(INT32_MAX, INT32_MAX) : own;
  }
  /// A run begins where all earlier ones have ended.
  __device__ static RowRuns joined(const int2 (&sorted)[kHalves]) {
    const int lane = threadIdx.x % 32;
    RowRuns runs;
    int before = 0;  // reached by the runs of the half before
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const bool exists = sorted[h].x != INT32_MAX;
      const int reached = max(most_of_lanes(exists ? sorted[h].y : 0), before),
                left = __shfl_up_sync(~0u, reached, 1);
      runs.start[h] = max(sorted[h].x, lane == 0 ? before : left);
      runs.end[h] = exists ? max(runs.start[h], sorted[h].y) : runs.start[h];
      before = __shfl_sync(~0u, reached, 31);
    }
    return runs;
  }
};

}  // namespace nsa::kernels::portable
