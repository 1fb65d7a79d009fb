// The lists of block selection: the best blocks of a token so far, and how candidates enter them.
// By one warp.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>

#include "nsa/kernels/common/mma.cuh"

namespace nsa::kernels {

using portable::is_above;

/// Free blocks of a token that may be chosen: the best ones so far, then candidates that came
/// since and beat the worst of them; ascending in index. Place 32 h + lane is element h of a lane.
template <int kPlaces_>
struct BlockListOf {
  static constexpr int kPlaces = kPlaces_, kHalves = kPlaces / 32;
  alignas(16) float score[kPlaces];
  int block[kPlaces];
};
template <int kMaxCarry>
struct alignas(16) ListStateOf {
  float threshold;         // a candidate at or below it is not among the best
  int count;               // places of the list in use
  int last_free;           // the last block that may be chosen by score; -1: none is
  float carry[kMaxCarry];  // columns of the step before: compressed blocks that reach into this one
};
/// For n up to 32 and l / d up to 4, and for n up to 64 and l / d up to 8.
using BlockList = BlockListOf<32>;
using ListState = ListStateOf<3>;
using WideBlockList = BlockListOf<64>;
using WideListState = ListStateOf<7>;

/// Scores of a list above `own`, of its place; `equal_before`: those equal to it in lower places.
template <int kPlaces>
__device__ __forceinline__ int rank_of(const float (&score)[kPlaces], float own, int equal_before) {
  float above[4] = {};
#pragma unroll(kPlaces == 32 ? 8 : 2)
  for (int i = 0; i < kPlaces / 4; ++i) {
    const float4 x = reinterpret_cast<const float4*>(score)[i];
    above[0] += is_above(x.x, own), above[1] += is_above(x.y, own);
    above[2] += is_above(x.z, own), above[3] += is_above(x.w, own);
  }
  return static_cast<int>((above[0] + above[1]) + (above[2] + above[3])) + equal_before;
}

/// Keeps the `places` best of a full list, equal scores by the lower index, and returns the worst
/// score among them. Not inlined: it is rarely called, and its registers would be spilled.
template <class List = WideBlockList>
__device__ __noinline__ float keep_best(std::enable_if_t<List::kHalves == 2, List>& list,
                                        int places) {
  const int lane = threadIdx.x % 32;
  const unsigned before = (1u << lane) - 1;
  const float own[2] = {list.score[lane], list.score[32 + lane]};
  const int block[2] = {list.block[lane], list.block[32 + lane]};
  const int of_first = __popc(__match_any_sync(~0u, __float_as_int(own[0])) & before);
  int of_second = __popc(__match_any_sync(~0u, __float_as_int(own[1])) & before);
#pragma unroll 4
  for (int i = 0; i < 32; ++i) of_second += __shfl_sync(~0u, own[0], i) == own[1] ? 1 : 0;
  const int rank[2] = {rank_of(list.score, own[0], of_first),
                       rank_of(list.score, own[1], of_second)};
  float worst = 0.f;
  unsigned kept[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    kept[h] = __ballot_sync(~0u, rank[h] < places);
    const unsigned last = __ballot_sync(~0u, rank[h] == places - 1);
    if (last != 0) worst = __shfl_sync(~0u, own[h], __ffs(last) - 1);
  }
  __syncwarp();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int place = (h == 0 ? 0 : __popc(kept[0])) + __popc(kept[h] & before);
    if (rank[h] < places) list.score[place] = own[h], list.block[place] = block[h];
  }
  __syncwarp();
  return worst;
}
__device__ __forceinline__ float keep_best(BlockList& list, int places) {
  const int lane = threadIdx.x % 32;
  const unsigned before = (1u << lane) - 1;
  const float own = list.score[lane];
  const int block = list.block[lane];
  const int rank =
      rank_of(list.score, own, __popc(__match_any_sync(~0u, __float_as_int(own)) & before));
  const unsigned kept = __ballot_sync(~0u, rank < places);
  const float worst = __shfl_sync(~0u, own, __ffs(__ballot_sync(~0u, rank == places - 1)) - 1);
  __syncwarp();
  if (rank < places) {
    const int place = __popc(kept & before);
    list.score[place] = own, list.block[place] = block;
  }
  __syncwarp();
  return worst;
}

/// Adds the candidates of the lanes in `waiting`, ascending in block index; each beats the
/// threshold.
template <class List, class State>
__device__ __forceinline__ void add_candidates(List& list, State& state, int places,
                                               unsigned waiting, float score, int block) {
  const int lane = threadIdx.x % 32;
  int count = state.count;
  float threshold = state.threshold;
  while (waiting != 0) {
    const int place = count + __popc(waiting & ((1u << lane) - 1));
    const bool waits = waiting >> lane & 1, enters = waits && place < List::kPlaces;
    if (enters) list.score[place] = score, list.block[place] = block;
    __syncwarp();
    count = min(count + __popc(waiting), List::kPlaces);
    waiting = 0;
    if (count == List::kPlaces) {
      threshold = keep_best(list, places);
      count = places;
      waiting = __ballot_sync(~0u, waits && !enters && score > threshold);
    }
  }
  if (lane == 0) state.threshold = threshold, state.count = count;
  __syncwarp();
}

/// The same where a lane has four adjacent blocks from `first_block` on; `waiting`: the bits of
/// those of them that beat the threshold.
template <class List, class State>
__device__ __forceinline__ void add_adjacent_candidates(List& list, State& state, int places,
                                                        unsigned waiting, const float (&scores)[4],
                                                        int first_block) {
  const unsigned before = (1u << threadIdx.x % 32) - 1;
  int count = state.count;
  do {
    int place = count;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const unsigned wait = __ballot_sync(~0u, waiting >> j & 1);
      place += __popc(wait & before), count += __popc(wait);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((waiting >> j & 1) == 0) continue;
      if (place < List::kPlaces) {
        list.score[place] = scores[j], list.block[place] = first_block + j;
        waiting &= ~(1u << j);
      }
      ++place;
    }
    __syncwarp();
    if (count < List::kPlaces) break;
    const float threshold = keep_best(list, places);
    count = places;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (!(scores[j] > threshold)) waiting &= ~(1u << j);
    if (threadIdx.x % 32 == 0) state.threshold = threshold;
  } while (__ballot_sync(~0u, waiting != 0) != 0);
  if (threadIdx.x % 32 == 0) state.count = count;
  __syncwarp();
}

}  // namespace nsa::kernels
