// One warp's share of block selection: probabilities of 16 rows -> scores of its tokens -> the best
// blocks.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "nsa/device/interval_attention.h"

namespace nsa::device::sm90 {

constexpr int kSelectKeys = 128;  // compressed blocks of a step
constexpr int kMaxCarry = 3;      // compressed blocks that reach into the next step: l / d - 1

/// Sums of a warp's 16 rows x 128 columns over the rows of each token. `scores(i)` are a thread's
/// accumulators: column (i / 4) * 8 + (lane % 4) * 2 + i % 2 of row lane / 4 + 8 * (i / 2 % 2).
/// Rows of a token are adjacent; kGroup of them. The sums go to out[token of the warp][column].
template <int kGroup, typename Scores>
__device__ __forceinline__ void sum_rows_of_tokens(Scores& scores, float* out) {
  const int lane = threadIdx.x % 32;
  constexpr int kHalves = kGroup == 16 ? 1 : 2;  // tokens the two row halves of a thread belong to
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    float sums[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int at = (i / 2) * 4 + i % 2 + 2 * half;
      sums[i] = kGroup == 16 ? scores(at) + scores(at + 2) : scores(at);
    }
    // Each step adds the two halves of the lanes and leaves every lane with half of the columns.
    int width = 32, column = (lane % 4) * 2, row = lane / 4;
#pragma unroll
    for (int bit = kGroup >= 8 ? 4 : kGroup == 4 ? 2 : 1; bit >= 1 && kGroup > 1; bit /= 2) {
      width /= 2;
      const bool upper = row & bit;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (i >= width) break;
        const float keep = upper ? sums[i + width] : sums[i],
                    give = upper ? sums[i] : sums[i + width];
        sums[i] = keep + __shfl_xor_sync(~0u, give, bit * 4);
      }
      column += upper ? width / 2 * 8 : 0;
    }
    constexpr int kRowsLeft =
        kGroup >= 8 ? 8 : kGroup;  // rows of the half that were summed into one
    const int token = half * (8 / kRowsLeft) + row / kRowsLeft;
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      if (i >= width) break;
      *reinterpret_cast<float2*>(out + token * kSelectKeys + column + i / 2 * 8) =
          make_float2(sums[i], sums[i + 1]);
    }
  }
}

template <typename Scores>
__device__ __forceinline__ void sum_rows_of_tokens(Scores& scores, float* out, int group) {
  switch (group) {
    case 1:
      return sum_rows_of_tokens<1>(scores, out);
    case 2:
      return sum_rows_of_tokens<2>(scores, out);
    case 4:
      return sum_rows_of_tokens<4>(scores, out);
    case 8:
      return sum_rows_of_tokens<8>(scores, out);
    default:
      return sum_rows_of_tokens<16>(scores, out);
  }
}

/// The best free blocks so far of up to 16 tokens. List of a token: lane i holds the i-th best;
/// score descending, equal scores by index ascending because candidates come in that order.
struct BestBlocks {
  float score[16];
  int block[16];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int u = 0; u < 16; ++u)
      score[u] = -2.f, block[u] = -1;  // below every number and below NaN
  }

  /// Offers one candidate a lane to token u; `valid` lanes ascending in block index.
  __device__ __forceinline__ static void offer(float& score, int& block, int places,
                                               float candidate, int id, bool valid) {
    const int lane = threadIdx.x % 32;
    if (isnan(candidate)) candidate = -1.f;  // ranks below every number
    const float worst = __shfl_sync(~0u, score, places - 1);
    unsigned waiting = __ballot_sync(~0u, valid && candidate > worst);
    while (waiting != 0) {
      const int source = __ffs(waiting) - 1;
      const float value = __shfl_sync(~0u, candidate, source);
      const int value_id = __shfl_sync(~0u, id, source);
      const int place = __popc(__ballot_sync(~0u, lane < places && score >= value));
      const float score_before = __shfl_up_sync(~0u, score, 1);
      const int block_before = __shfl_up_sync(~0u, block, 1);
      if (lane == place) score = value, block = value_id;
      if (lane > place && lane < places) score = score_before, block = block_before;
      const float last = __shfl_sync(~0u, score, places - 1);
      waiting &= ~(1u << source);
      waiting &= __ballot_sync(~0u, candidate > last);
    }
  }
};

/// Score of this lane's selection block of a token: sum over compressed blocks i ascending of
/// weight(i) * sums[i]. sums: the token's columns of this step; carry: the `overlap` columns before
/// them; strides: l' / d; overlap: l / d - 1; own: the block, counted from the step's first; lanes
/// hold consecutive blocks. All lanes call; a block behind the step's last one scores 0.
__device__ __forceinline__ float pooled_score(const float* sums, const float* carry, int own,
                                              int strides, int overlap) {
  if (strides == 4 && overlap == 1) {  // l, d, l' = 32, 16, 64
    const float4 x = *reinterpret_cast<const float4*>(sums + own * 4);
    const float before = __shfl_up_sync(~0u, x.w, 1);
    const float left = own == 0 ? carry[0] : before;
    return fmaf(2.f, x.z, fmaf(2.f, x.y, fmaf(2.f, x.x, left))) + x.w;
  }
  const int first = own * strides;
  float total = 0.f;
  if (first >= kSelectKeys) return total;
  for (int i = first - overlap; i < first + strides; ++i) {
    const int weight = min(i + overlap + 1, first + strides) - max(i, first);
    total = fmaf(static_cast<float>(weight), i < 0 ? carry[i + overlap] : sums[i], total);
  }
  return total;
}

/// Writes the ids of one token (and its ranges): forced blocks and the free ones of its list,
/// ascending.
__device__ __forceinline__ void write_blocks(const BlockSelection& s, int64_t row, int position,
                                             int free_block) {
  const int lane = threadIdx.x % 32, current = position / s.sel_block_size, n = s.top_n;
  const int places = n - s.num_initial - s.num_local;
  int id = -1;
  if (current + 1 <= n) {
    id = lane <= current ? lane : -1;
  } else {
    // Free blocks lie between the forced ones, so only they need sorting.
    int rank = 0;
    for (int i = 0; i < places; ++i) rank += __shfl_sync(~0u, free_block, i) < free_block ? 1 : 0;
    for (int i = 0; i < places; ++i) {
      const int place = s.num_initial + __shfl_sync(~0u, rank, i),
                block = __shfl_sync(~0u, free_block, i);
      if (lane == place) id = block;
    }
    if (lane < s.num_initial) id = lane;
    if (lane >= n - s.num_local) id = current - (n - 1 - lane);
    if (lane >= n) id = -1;
  }
  if (lane < n) s.block_idx[row * n + lane] = id;
  if (s.ranges == nullptr) return;
  int2* ranges = reinterpret_cast<int2*>(s.ranges) + row * n;
  const int before = __shfl_up_sync(~0u, id, 1), after = __shfl_down_sync(~0u, id, 1);
  const bool starts = id >= 0 && (lane == 0 || before != id - 1);
  const bool ends = id >= 0 && (lane == 31 || lane == n - 1 || after != id + 1);
  const unsigned start_lanes = __ballot_sync(~0u, starts), end_lanes = __ballot_sync(~0u, ends);
  const int count = __popc(start_lanes);
  // Lane i writes range i: the i-th start and the i-th end.
  const int start_lane = lane < count ? __fns(start_lanes, 0, lane + 1) : 0;
  const int end_lane = lane < count ? __fns(end_lanes, 0, lane + 1) : 0;
  const int first = __shfl_sync(~0u, id, start_lane), last = __shfl_sync(~0u, id, end_lane);
  if (lane < n)
    ranges[lane] = lane < count ? make_int2(first * s.sel_block_size,
                                            min((last + 1) * s.sel_block_size, position + 1))
                                : make_int2(0, 0);
}

}  // namespace nsa::device::sm90
