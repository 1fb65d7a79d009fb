// One warp's share of block selection: probabilities of 16 rows -> scores of its tokens -> the best
// blocks. A step is 128 compressed blocks; rows lie as in accumulators of wgmma and of mma.sync.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "nsa/kernels/interval/block_list.cuh"
#include "nsa/kernels/interval/interval_attention.h"

namespace nsa::kernels {

constexpr int kSelectKeys = 128;  // compressed blocks of a step

/// Where column `column` of a token lies in its line of sums; `first_row` is the token's first row
/// in the warp. Swizzled so that the lanes of a store meet different banks.
__device__ __forceinline__ int sums_place(int column, int first_row) {
  return column ^ ((first_row & 3) << 3);
}

/// Sums of a warp's 16 rows x 128 columns over the rows of each token; rows of a token are
/// adjacent, kGroup of them. `take` reads a thread's accumulators: column (i / 4) * 8 + (lane % 4)
/// * 2 + i % 2 of row lane / 4 + 8 * (i / 2 % 2). `store` adds those of other lanes and writes to
/// out[token of the warp][place].
template <int kGroup>
struct RowSums {
  static constexpr int kHalves =
      kGroup == 16 ? 1 : 2;  // tokens that the two rows of a thread are of
  float sums[kHalves][32];   // 16 chunks of 8 columns, two of each

  template <typename Scores>
  __device__ __forceinline__ void take(const Scores& scores) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half)
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int at = (i / 2) * 4 + i % 2 + 2 * half;
        sums[half][i] = kGroup == 16 ? scores(at) + scores(at + 2) : scores(at);
      }
  }
  __device__ __forceinline__ void store(float* out) {
    constexpr int kRowsInHalf = kGroup >= 8 ? 8 : kGroup;  // rows of the half that become one
    const int lane = threadIdx.x % 32, row = lane / 4;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      // Each step adds the two halves of the lanes and leaves every lane with half of the chunks.
      int chunk = 0;
#pragma unroll
      for (int bit = 1; bit < kRowsInHalf; bit *= 2) {
        const bool odd = row & bit;
#pragma unroll
        for (int i = 0; i < 16 / bit; ++i) {
          const int even = i / 2 * 4 + i % 2;
          const float keep = odd ? sums[half][even + 2] : sums[half][even],
                      give = odd ? sums[half][even] : sums[half][even + 2];
          sums[half][i] = keep + __shfl_xor_sync(~0u, give, bit * 4);
        }
        chunk += odd ? bit : 0;
      }
      const int token = half * (8 / kRowsInHalf) + row / kRowsInHalf;
#pragma unroll
      for (int i = 0; i < 16 / kRowsInHalf; ++i) {
        const int column = (i * kRowsInHalf + chunk) * 8 + (lane % 4) * 2;
        *reinterpret_cast<float2*>(out + token * kSelectKeys + sums_place(column, token * kGroup)) =
            make_float2(sums[half][2 * i], sums[half][2 * i + 1]);
      }
    }
  }
};

/// Score of this lane's selection block of a token: sum over compressed blocks i ascending of
/// weight(i) * sums[i]; NaN becomes -1, below every number. sums: the token's line; carry: the
/// `overlap` columns before them; strides: l' / d; overlap: l / d - 1; own: the block, counted from
/// the step's first. A block behind the step's last one scores 0.
__device__ __forceinline__ float pooled_score(const float* sums, int first_row, const float* carry,
                                              int own, int strides, int overlap) {
  const int first = own * strides;
  float total = 0.f;
  if (first >= kSelectKeys) return total;
  for (int i = first - overlap; i < first + strides; ++i) {
    const int weight = min(i + overlap + 1, first + strides) - max(i, first);
    total = fmaf(static_cast<float>(weight),
                 i < 0 ? carry[i + overlap] : sums[sums_place(i, first_row)], total);
  }
  return fmaxf(total, -1.f);
}

/// The same for l, d, l' = 32, 16, 64, where a step has a block a lane, for `kTokens` tokens at
/// once; brings their carries up to date. first_row: of the first token.
template <int kTokens, int kGroup, class State>
__device__ __forceinline__ void pooled_scores_of_four(const float* sums, int first_row,
                                                      State* states, float (&scores)[kTokens]) {
  const int lane = threadIdx.x % 32;
  float4 x[kTokens];
  float left[kTokens], carry[kTokens];
#pragma unroll
  for (int u = 0; u < kTokens; ++u) {
    x[u] = *reinterpret_cast<const float4*>(sums + u * kSelectKeys +
                                            sums_place(lane * 4, first_row + u * kGroup));
    carry[u] = lane == 0 ? states[u].carry[0] : 0.f;
  }
  __syncwarp();  // lanes may read a whole state at once, carry and all; lane 0 renews it below
#pragma unroll
  for (int u = 0; u < kTokens; ++u) left[u] = __shfl_sync(~0u, x[u].w, (lane + 31) % 32);
#pragma unroll
  for (int u = 0; u < kTokens; ++u) {
    if (lane == 0) states[u].carry[0] = left[u];  // of the last lane
    const float before = lane == 0 ? carry[u] : left[u];
    scores[u] =
        fmaxf(fmaf(2.f, x[u].z, fmaf(2.f, x[u].y, fmaf(2.f, x[u].x, before))) + x[u].w, -1.f);
  }
}

/// Writes the ids of one token, ascending, and its ranges. current: the block it lies in;
/// free_blocks: the blocks chosen by score, ascending; not read where every block is chosen.
/// kHalves: 1 for up to 32 ids, 2 for up to 64.
template <int kHalves>
__device__ __forceinline__ void write_blocks(const BlockSelection& s, int64_t row, int position,
                                             int current, const int* free_blocks) {
  const int lane = threadIdx.x % 32, n = s.top_n;
  int id[kHalves];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const int place = h * 32 + lane;
    id[h] = -1;
    if (current + 1 <= n)
      id[h] = place <= current ? place : -1;
    else if (place < s.num_initial)
      id[h] = place;
    else if (place < n - s.num_local)
      id[h] = free_blocks[place - s.num_initial];
    else if (place < n)
      id[h] = current - (n - 1 - place);
    if (place < n) s.block_idx[row * n + place] = id[h];
  }
  if (s.ranges == nullptr) return;
  int32_t* const ranges = s.ranges + row * n * 2;
  const unsigned before = (1u << lane) - 1;
  int starts_before = 0, ends_before = 0;  // of the half before
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    const int place = h * 32 + lane;
    int previous = __shfl_up_sync(~0u, id[h], 1), next = __shfl_down_sync(~0u, id[h], 1);
    if (h > 0) {
      const int last = __shfl_sync(~0u, id[h > 0 ? h - 1 : 0], 31);
      if (lane == 0) previous = last;
    }
    if (h + 1 < kHalves) {
      const int first = __shfl_sync(~0u, id[h + 1 < kHalves ? h + 1 : h], 0);
      if (lane == 31) next = first;
    }
    const bool starts = id[h] >= 0 && (place == 0 || previous != id[h] - 1);
    const bool ends = id[h] >= 0 && (place >= n - 1 || next != id[h] + 1);
    const unsigned start_lanes = __ballot_sync(~0u, starts), end_lanes = __ballot_sync(~0u, ends);
    if (starts)
      ranges[2 * (starts_before + __popc(start_lanes & before))] = id[h] * s.sel_block_size;
    if (ends)
      ranges[2 * (ends_before + __popc(end_lanes & before)) + 1] =
          min((id[h] + 1) * s.sel_block_size, position + 1);
    starts_before += __popc(start_lanes), ends_before += __popc(end_lanes);
  }
#pragma unroll
  for (int h = 0; h < kHalves; ++h)
    if (h * 32 + lane < n && h * 32 + lane >= starts_before)
      *reinterpret_cast<int2*>(ranges + 2 * (h * 32 + lane)) = make_int2(0, 0);
}

// What follows is the same for all passes that choose blocks. Arguments, Tile and Warp are those of
// the pass: interval/sm90/selection_pass.cuh, interval/sm80/interval_selection.cuh.

/// Empty lists. Tokens all of whose blocks are chosen, or that do not exist, have no candidates.
template <class Arguments, class Tile, class Warp>
__device__ __forceinline__ void begin_lists(const Arguments& a, const Tile& tile, const Warp& w) {
  const int lane = threadIdx.x % 32, token = w.first_token + lane;
  if (lane < w.tokens) {
    const BlockSelection& choice = a.selection;
    const int current = a.by_sel_block.quotient(tile.shift + tile.first + token);
    const bool chooses = token < tile.count && current + 1 > choice.top_n;
    std::decay_t<decltype(*w.states)> state{
        -2.f, 0, chooses ? current - choice.num_local : -1, {}};  // -2: below NaN's
    w.states[lane] = state;
  }
  __syncwarp();
}

/// Offers the blocks of a step to the lists of the warp's tokens; a block a lane.
template <int kGroup, class Warp>
__device__ __forceinline__ void choose_of_four(const BlockSelection& choice, const Warp& w,
                                               int step) {
  constexpr int kTokens = 16 / kGroup, kBatch = kTokens < 4 ? kTokens : 4;
  const int block = step * 32 + threadIdx.x % 32;
  for (int first = 0; first < kTokens; first += kBatch) {
    auto* const states = w.states + first;
    float scores[kBatch], thresholds[kBatch];
    int last_free[kBatch];
    unsigned waiting[kBatch], any = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      thresholds[i] = states[i].threshold, last_free[i] = states[i].last_free;
    pooled_scores_of_four<kBatch, kGroup>(w.sums + first * kSelectKeys, first * kGroup, states,
                                          scores);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const bool free = (block >= choice.num_initial) & (block <= last_free[i]);
      waiting[i] = __ballot_sync(~0u, free & (scores[i] > thresholds[i]));
      any |= waiting[i];
    }
    if (any == 0) continue;
#pragma unroll 1
    for (int i = 0; i < kBatch; ++i) {
      float score = scores[0];
      unsigned candidates = waiting[0];
#pragma unroll
      for (int j = 1; j < kBatch; ++j)
        if (i == j) score = scores[j], candidates = waiting[j];
      if (candidates != 0)
        add_candidates(w.lists[first + i], states[i], w.places, candidates, score, block);
    }
  }
}

/// The same where l = d = l': four adjacent blocks a lane.
template <int kGroup, class Warp>
__device__ __forceinline__ void choose_of_adjacent(const BlockSelection& choice, const Warp& w,
                                                   int step) {
  const int lane = threadIdx.x % 32, first = step * kSelectKeys + lane * 4;
#pragma unroll 1
  for (int u = 0; u < 16 / kGroup; ++u) {
    auto& state = w.states[u];
    const float4 sums = *reinterpret_cast<const float4*>(w.sums + u * kSelectKeys +
                                                         sums_place(lane * 4, u * kGroup));
    const float threshold = state.threshold;
    const int last_free = state.last_free;
    const float scores[4] = {fmaxf(sums.x, -1.f), fmaxf(sums.y, -1.f), fmaxf(sums.z, -1.f),
                             fmaxf(sums.w, -1.f)};
    unsigned waiting = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool free = (first + j >= choice.num_initial) & (first + j <= last_free);
      if (free & (scores[j] > threshold)) waiting |= 1u << j;
    }
    if (__ballot_sync(~0u, waiting != 0) != 0)
      add_adjacent_candidates(w.lists[u], state, w.places, waiting, scores, first);
  }
}

/// The same for any l, d, l'.
template <int kGroup, class Arguments, class Warp>
__device__ __forceinline__ void choose_of_any(const Arguments& a, const Warp& w, int step) {
  const BlockSelection& choice = a.selection;
  const int lane = threadIdx.x % 32, blocks_of_step = kSelectKeys / a.strides;
#pragma unroll 1
  for (int u = 0; u < w.tokens; ++u) {
    const float* sums = w.sums + u * kSelectKeys;
    auto& state = w.states[u];
    for (int first = 0; first < blocks_of_step; first += 32) {
      const int own = first + lane, block = step * blocks_of_step + own;
      const float score = pooled_score(sums, u * kGroup, state.carry, own, a.strides, a.overlap);
      const unsigned waiting =
          __ballot_sync(~0u, own < blocks_of_step && block >= choice.num_initial &&
                                 block <= state.last_free && score > state.threshold);
      if (waiting != 0) add_candidates(w.lists[u], state, w.places, waiting, score, block);
    }
    __syncwarp();
    if (lane < a.overlap)
      state.carry[lane] = sums[sums_place(kSelectKeys - a.overlap + lane, u * kGroup)];
  }
  __syncwarp();
}

/// Ids and ranges of the warp's tokens.
template <class Arguments, class Tile, class Warp>
__device__ __forceinline__ void write_lists(const Arguments& a, const Tile& tile, const Warp& w) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int u = 0; u < w.tokens && w.first_token + u < tile.count; ++u) {
    const int token = tile.first + w.first_token + u;
    auto& list = w.lists[u];
    if (tile.select_steps > 0 && w.states[u].last_free >= 0) {
      for (int i = lane; i < list.kPlaces; i += 32)
        if (i >= w.states[u].count) list.score[i] = -2.f;
      __syncwarp();
      keep_best(list, w.places);
    }
    const int64_t row =
        (int64_t(tile.batch) * a.num_queries + token) * a.by_kv_heads.value + tile.kv_head;
    const int position = tile.shift + token;
    write_blocks<std::decay_t<decltype(list)>::kHalves>(
        a.selection, row, position, a.by_sel_block.quotient(position), list.block);
  }
}

}  // namespace nsa::kernels
