// One warp's share of block selection for l, d, l' = 32, 16, 64: block scores in registers, those
// that may be among the best in lists in shared memory, the best of a list.
//
// A lane scores the same 16 / kGroup of a step's 32 blocks in every step and keeps the highest
// score of each: 32 maxima a token. As many of them as blocks are to be chosen are the scores of so
// many blocks: none below the worst of these can be chosen. So few blocks enter a list.
#pragma once
#include <climits>

#include "nsa/kernels/interval/sm90/block_scores.cuh"

namespace nsa::kernels::sm90 {

/// Shared memory of a token, in bytes: no less than lists and sums of block_selector.cuh take.
constexpr int kCandidatePlaces = 784;
static_assert(kCandidatePlaces >= sizeof(BlockList) + kSelectKeys * sizeof(float));

struct alignas(8) Candidate {
  float score;
  int block;
};

/// Lists of a warp's tokens and two places to rank in, all in its tokens' share of shared memory.
/// Where a token has two lanes, each has a list of its own; 94 words apart, so that lanes that read
/// the same place of theirs meet different banks.
template <int kGroup>
struct CandidateLists {
  static constexpr bool kTwo = kGroup == 1;  // lists a token
  static constexpr int kCapacity = kTwo ? 47 : 96, kMostNew = kTwo ? 16 : 32;
  char* base;

  /// What a token's candidates are ranked by, then the blocks it chose.
  union Ranking {
    float scores[32];
    int blocks[32];
  };
  __device__ __forceinline__ Candidate* of_lane(int lane, int token) const {
    const int list = kTwo ? lane : token;
    return reinterpret_cast<Candidate*>(base + list * (kTwo ? 47 * 8 : kCandidatePlaces));
  }
  /// Of the `nth` token of those ranked together. A list has at most 32 entries then.
  __device__ __forceinline__ Ranking& ranking(int nth, int token) const {
    return *reinterpret_cast<Ranking*>(
        base + (kTwo ? 32 * 47 * 8 + nth * sizeof(Ranking) : token * kCandidatePlaces + 32 * 8));
  }
};

/// The larger number above `score`; NaN's -1 stays.
__device__ __forceinline__ float just_above(float score) {
  return score >= 0.f ? __int_as_float(__float_as_int(score) + 1) : score;
}
__device__ __forceinline__ float larger_or_smaller(bool larger, float x, float y) {
  return larger ? fmaxf(x, y) : fminf(x, y);
}

template <int kGroup>
struct BlockCandidates {
  using Lanes = BlockLanes<kGroup>;
  static constexpr int kBlocks = Lanes::kBlocks, kTokens = Lanes::kTokens, kShift = Lanes::kShift;
  using Lists = CandidateLists<kGroup>;
  static constexpr float kNone = -INFINITY;
  static constexpr float kLowest = -2.f;  // below NaN's

  Lists lists;
  const BlockSelection& choice;
  int last_free;          // of this lane's token; -1: none may be chosen
  int count = 0;          // of this lane's list
  float bound = kLowest;  // `places` blocks so far have this score or a higher one
  float most[kBlocks];    // of this lane's blocks of all steps

  __device__ __forceinline__ BlockCandidates(char* base, const BlockSelection& choice,
                                             int last_free)
      : lists{base}, choice(choice), last_free(last_free) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) most[i] = kNone;
  }

  /// Blocks to be chosen by score.
  __device__ __forceinline__ int places() const {
    return choice.top_n - choice.num_initial - choice.num_local;
  }

  /// Whether the bound rises at the `number`-th step. It always does at the last and where a list
  /// is full. A list of a token has room for the first steps.
  __device__ __forceinline__ static bool raises_bound(int number) {
    const int low = number & -number;
    return Lists::kTwo ? number == low || number == 3 * low : number == low && number > 1;
  }

  /// A step's blocks.
  __device__ __forceinline__ void offer(int step, bool ends, float (&scores)[kBlocks]) {
    const Lanes me;
    const int first = step * 32 + me.first_block();
    if (!__all_sync(~0u, step * 32 >= choice.num_initial && step * 32 + 31 <= last_free)) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) {
        const int block = first + i * Lanes::kNextBlock;
        if (block < choice.num_initial || block > last_free) scores[i] = kNone;
      }
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) most[i] = fmaxf(most[i], scores[i]);
    const bool full = __any_sync(~0u, count > Lists::kCapacity - Lists::kMostNew);
    float enter = just_above(bound);  // against equal ones that came before a block loses
    if (full || ends || raises_bound(step + 1)) {
      bound = fmaxf(bound, bound_of_maxima(me.lane));
      if (full) make_room();
      enter = fmaxf(enter, bound);
    }
    append(me, first, enter, scores);
  }

  /// Of the 32 maxima half are in each of two rows, which are sorted; as many of each as make
  /// `places` together. Which blocks share a maximum does not matter, so they stay sorted.
  __device__ __forceinline__ float bound_of_maxima(int lane) {
#pragma unroll
    for (int size = 2; size <= 16; size *= 2)
#pragma unroll
      for (int stride = size / 2; stride > 0; stride /= 2) sort_step(lane, size, stride);
    const int index = (places() + 1) / 2 - 1;
    float row[kBlocks];
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) row[i] = most[i];
#pragma unroll
    for (int half = kBlocks / 2; half > 0; half /= 2)  // row[0] becomes row[index % kBlocks]
#pragma unroll
      for (int i = 0; i < kBlocks / 2; ++i)
        if (i < half) row[i] = index & half ? row[i + half] : row[i];
    float found = row[0];
    constexpr int kRowLanes = (kGroup - 1) << kShift;
    if constexpr (kGroup > 1)
      found = __shfl_sync(~0u, found, (lane & ~kRowLanes) | (index / kBlocks) << kShift);
    return fminf(found, __shfl_xor_sync(~0u, found, kGroup << kShift));
  }
  /// Place e of a row of 16 is place e % kBlocks of its lane e / kBlocks. Bitonic, descending.
  __device__ __forceinline__ void sort_step(int lane, int size, int stride) {
    const int own = lane >> kShift;
    const bool descends = size == 16 || (own & (size / kBlocks)) == 0;
    if (stride >= kBlocks) {
      const int bit = stride / kBlocks;
      const bool larger = ((own & bit) == 0) == descends;
#pragma unroll
      for (int i = 0; i < kBlocks; ++i)
        most[i] = larger_or_smaller(larger, most[i], __shfl_xor_sync(~0u, most[i], bit << kShift));
      return;
    }
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (i & stride) continue;
      const bool larger = size == 16 || size >= kBlocks ? descends : (i & size) == 0;
      const float x = most[i], y = most[i + stride];
      most[i] = larger_or_smaller(larger, x, y),
      most[i + stride] = larger_or_smaller(!larger, x, y);
    }
  }

  __device__ __forceinline__ void append(const Lanes& me, int first, float enter,
                                         const float (&scores)[kBlocks]) {
    Candidate* const list = lists.of_lane(me.lane, me.token());
    const unsigned own = me.of_token(), before = me.before();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const bool enters = scores[i] >= enter;
      const int block = first + i * Lanes::kNextBlock;
      if (Lists::kTwo) {
        if (enters) list[count++] = {scores[i], block};
      } else {
        const unsigned entering = __ballot_sync(~0u, enters) & own;
        if (enters) list[count + __popc(entering & before)] = {scores[i], block};
        count += __popc(entering);
      }
    }
    __syncwarp();
  }

  /// So that the blocks of a step find room: without candidates below the bound, and where that
  /// does not do with the best ones alone.
  __device__ __forceinline__ void make_room() {
    drop();
    const unsigned full = __ballot_sync(~0u, count > Lists::kCapacity - Lists::kMostNew);
    if (full == 0) return;
    for (int token = 0; token < kTokens; ++token) {
      const int of = Lanes::lane_of(token);
      if ((full >> of & (Lists::kTwo ? 5 : 1)) == 0) continue;
      const float worst = keep_best(token);
      if (Lanes().token() == token) bound = fmaxf(bound, worst);
    }
  }

  /// Drops candidates below the bound.
  __device__ __forceinline__ void drop() {
    if constexpr (Lists::kTwo) {  // a list a lane
      Candidate* const list = lists.of_lane(Lanes().lane, 0);
      const int longest = __reduce_max_sync(~0u, count);
      int kept = 0;
      for (int first = 0; first < longest; first += 4) {
        Candidate x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          x[i] = first + i < count ? list[first + i] : Candidate{kNone, 0};
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (x[i].score >= bound) list[kept++] = x[i];
      }
      count = kept;
      __syncwarp();
    } else {
      drop_of_tokens();
    }
  }
  __device__ __forceinline__ void drop_of_tokens() {
    const Lanes me;
    const int lane = me.lane;
    for (int token = 0; token < kTokens; ++token) {
      const int of = Lanes::lane_of(token), all = __shfl_sync(~0u, count, of);
      const float at_least = __shfl_sync(~0u, bound, of);
      Candidate* const list = lists.of_lane(of, token);
      int kept = 0;
      for (int first = 0; first < all; first += 32) {
        const Candidate x = first + lane < all ? list[first + lane] : Candidate{kNone, 0};
        const bool stays = x.score >= at_least;
        const unsigned staying = __ballot_sync(~0u, stays);
        if (stays) list[kept + __popc(staying & ((1u << lane) - 1))] = x;
        kept += __popc(staying);
        __syncwarp();
      }
      if (me.token() == token) count = kept;
    }
  }

  /// A token's candidates, one list behind the other.
  struct Joined {
    Candidate *first, *second;
    int of_first, all;
    __device__ __forceinline__ Candidate& operator[](int i) const {
      return Lists::kTwo && i >= of_first ? second[i - of_first] : first[i];
    }
  };
  __device__ __forceinline__ Joined joined(int token) const {
    const int of = Lanes::lane_of(token), own = __shfl_sync(~0u, count, of);
    const int other = Lists::kTwo ? __shfl_sync(~0u, count, (of + 2) % 32) : 0;
    return {lists.of_lane(of, token), lists.of_lane(of + 2, token), own, own + other};
  }

  /// Ranks all of a token's candidates, equal scores by the lower block, and keeps the best;
  /// returns the worst score among them. Takes its time.
  __device__ __forceinline__ float keep_best(int token) {
    const Joined list = joined(token);
    const Lanes me;
    const int lane = me.lane;
    Candidate own[3];
    int rank[3] = {}, kept = 0, of_first = 0;
    float worst = kNone;
#pragma unroll
    for (int j = 0; j < 3; ++j)
      own[j] = lane + 32 * j < list.all ? list[lane + 32 * j] : Candidate{kNone, INT_MAX};
#pragma unroll 1
    for (int i = 0; i < list.all; ++i) {
      const Candidate x = list[i];
#pragma unroll
      for (int j = 0; j < 3; ++j)
        rank[j] += x.score > own[j].score || (x.score == own[j].score && x.block < own[j].block);
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      const int i = lane + 32 * j;
      const bool stays = i < list.all && rank[j] < places(), first = stays && i < list.of_first;
      of_first += __popc(__ballot_sync(~0u, first));
      rank[j] = stays ? 0 : -1;
      if (stays) worst = worst == kNone ? own[j].score : fminf(worst, own[j].score);
    }
    const Joined kept_list{list.first, list.second, of_first, 0};
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      const unsigned staying = __ballot_sync(~0u, rank[j] == 0);
      if (rank[j] == 0) kept_list[kept + __popc(staying & ((1u << lane) - 1))] = own[j];
      kept += __popc(staying);
    }
    __syncwarp();
    const int of = Lanes::lane_of(token);
    if (me.token() == token) count = lane == of || !Lists::kTwo ? of_first : kept - of_first;
    worst = worst == kNone ? INFINITY : worst;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2)
      worst = fminf(worst, __shfl_xor_sync(~0u, worst, mask));
    return worst;
  }

  /// After the last step, before `best_blocks`.
  __device__ __forceinline__ void end() {
    const int all = Lists::kTwo ? count + __shfl_xor_sync(~0u, count, 2) : count;
    if (__any_sync(~0u, all > 32)) drop();
  }

  /// The blocks that tokens [token, token + kTogether) choose, ascending; block i in lane i.
  template <int kTogether>
  __device__ __forceinline__ void best_blocks(int token, int (&blocks)[kTogether]) {
    const int lane = Lanes().lane;
    Joined list[kTogether];
    Candidate own[kTogether];
    unsigned kept[kTogether];
    int longest = 0;
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      list[u] = joined(token + u);
      own[u] = lane < list[u].all ? list[u][lane] : Candidate{kNone, INT_MAX};
      longest = max(longest, list[u].all);
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < kTogether; ++u)
      if (list[u].all <= 32) lists.ranking(u, token + u).scores[lane] = own[u].score;
    __syncwarp();
    rank_own<kTogether>(token, min(longest, 32), own, list, kept);
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      // Too many for a lane each, or the worst of the best has equals.
      if (list[u].all <= 32 && __popc(kept[u]) <= places()) continue;
      keep_best(token + u);
      list[u] = joined(token + u);
      if (lane < list[u].all) own[u] = list[u][lane];
      kept[u] = list[u].all == 32 ? ~0u : (1u << list[u].all) - 1;
    }
    __syncwarp();
    arrange<kTogether>(token, own, list, kept, blocks);
  }
  /// `kept`: lanes whose own candidate fewer than `places` ones beat.
  template <int kTogether>
  __device__ __forceinline__ void rank_own(int token, int longest,
                                           const Candidate (&own)[kTogether],
                                           const Joined (&list)[kTogether],
                                           unsigned (&kept)[kTogether]) const {
    const int lane = Lanes().lane;
    float above[kTogether][4] = {};
#pragma unroll 1
    for (int i = 0; i < longest; i += 8)
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const float* scores = lists.ranking(u, token + u).scores + i;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float4 x = *reinterpret_cast<const float4*>(scores + 4 * half);
          above[u][0] += is_above(x.x, own[u].score), above[u][1] += is_above(x.y, own[u].score);
          above[u][2] += is_above(x.z, own[u].score), above[u][3] += is_above(x.w, own[u].score);
        }
      }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const float rank = (above[u][0] + above[u][1]) + (above[u][2] + above[u][3]);
      kept[u] = __ballot_sync(~0u, lane < list[u].all && rank < static_cast<float>(places()));
    }
  }
  /// Blocks of kept lanes, ascending. Either list is in order.
  template <int kTogether>
  __device__ __forceinline__ void arrange(int token, const Candidate (&own)[kTogether],
                                          const Joined (&list)[kTogether],
                                          const unsigned (&kept)[kTogether],
                                          int (&blocks)[kTogether]) const {
    const int lane = Lanes().lane;
    const unsigned before = (1u << lane) - 1;
#pragma unroll
    for (int u = 0; u < kTogether; ++u) lists.ranking(u, token + u).blocks[lane] = INT_MAX;
    __syncwarp();
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      int place = __popc(kept[u] & before);
      if (Lists::kTwo && lane >= list[u].of_first)  // descending from the end
        place = 31 - __popc(kept[u] & before & ~0u << list[u].of_first % 32);
      if (kept[u] >> lane & 1) lists.ranking(u, token + u).blocks[place] = own[u].block;
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < kTogether; ++u) blocks[u] = lists.ranking(u, token + u).blocks[lane];
    if constexpr (Lists::kTwo) {
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2)
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
          const int other = __shfl_xor_sync(~0u, blocks[u], mask);
          blocks[u] = lane & mask ? max(blocks[u], other) : min(blocks[u], other);
        }
    }
  }
};

}  // namespace nsa::kernels::sm90
