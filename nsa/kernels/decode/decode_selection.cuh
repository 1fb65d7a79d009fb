// From the scores of a rank's compressed blocks to the selected blocks, which all ranks choose
// alike.
#pragma once
#include <climits>

#include "nsa/kernels/decode/decode_exchange.cuh"

namespace nsa::kernels::portable {

constexpr int kHeadSplit = 4;  // threads among which heads are shared out

/// Probabilities of the blocks of this rank's units and of its halo, summed over heads, in place of
/// the first head's logits: four threads a block, every fourth head each.
template <typename Block>
__device__ __forceinline__ void sum_heads(const Block& b) {
  constexpr int kEach = kMostHeads / kHeadSplit;
  const int units = b.row.unit1(b.a) - b.row.unit0(b.a), part = b.lane % kHeadSplit;
  const int first = b.row.unit0(b.a) * b.a.blocks_of_unit - b.a.halo;
  const int blocks = units * b.a.blocks_of_unit + b.a.halo;
  float2 totals[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) totals[j] = b.shared.totals[0][j * kHeadSplit + part];
#pragma unroll 1
  for (int at = b.warp * 32; at < blocks * kHeadSplit; at += b.threads) {
    const int i = min((at + b.lane) / kHeadSplit, blocks - 1);
    const float* from = b.halo() + part * b.a.plan.score_stride + i;
    float sum = 0.f;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (j * kHeadSplit >= b.group) continue;
      const bool counts = j * kHeadSplit + part < b.group;
      const float s = counts ? from[j * kHeadSplit * b.a.plan.score_stride] : -INFINITY;
      const float one = fast_exp2((s - totals[j].x) * b.a.scale_log2) * totals[j].y;
      sum += counts ? one : 0.f;
    }
#pragma unroll
    for (int lanes = 1; lanes < kHeadSplit; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    const bool visible = first + i >= 0 && first + i < b.row.num_blocks;
    if (part == 0) b.halo()[i] = visible ? sum : 0.f;
  }
}

/// Score of this rank's unit `own` from probabilities.
template <typename Block>
__device__ __forceinline__ float score_of_blocks(const Block& b, int own) {
  const float last = static_cast<float>(b.a.blocks_of_unit), halo = static_cast<float>(b.a.halo);
  const float* from = b.halo() + own * b.a.blocks_of_unit;
  float score = 0.f, offset = -halo;
#pragma unroll 4
  for (int i = 0; i < b.a.blocks_of_unit + b.a.halo; ++i, offset += 1.f) {
    const float weight = fminf(offset + halo + 1.f, last) - fmaxf(offset, 0.f);
    score = __fadd_rn(score, __fmul_rn(weight, from[i]));
  }
  return score;
}

/// Scores of this rank's units from unit sums, in place of the first head's: four threads a tile of
/// four units, every fourth head each. They write when all of them have read.
template <typename Block>
__device__ __forceinline__ void score_sums(const Block& b) {
  constexpr int kSplit = kHeadSplit;
  const int units = b.row.unit1(b.a) - b.row.unit0(b.a);
  const int tiles = (units + 3) / 4, stride = b.a.plan.tile_stride;
  const int keys = b.row.block1 - b.row.block0, part = b.lane % kSplit;
  const auto relative = [](float reference, float to) {
    return whole_power(fminf(reference - to, 0.f));
  };
#pragma unroll 1
  for (int first = b.warp * 32; first < tiles * kSplit; first += b.threads) {
    const int tile = min((first + b.lane) / kSplit, tiles - 1);
    const bool has_keys = tile * kWarpTile < keys;
    float score[4] = {};
#pragma unroll
    for (int i = 0; i < kMostHeads / kSplit; ++i) {
      const bool counts = i * kSplit + part < b.group;
      const int head = counts ? i * kSplit + part : 0, at = head * stride + tile;
      const float2 factor = b.shared.factors[head];
      const float4 sums =
          *reinterpret_cast<const float4*>(b.scores() + head * b.a.plan.score_stride + 4 * tile);
      const float carry = b.carries()[at] * relative(b.references()[at], factor.x);
      const float now = relative(b.references()[at + 1], factor.x);
      const float each[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float all = __fadd_rn(has_keys ? each[j] * now : 0.f, j == 0 ? carry : 0.f);
        const float one = __fmul_rn(all, factor.y);
        score[j] = __fadd_rn(score[j], counts ? one : 0.f);
      }
    }
#pragma unroll
    for (int lanes = 1; lanes < kSplit; lanes *= 2)
#pragma unroll
      for (int j = 0; j < 4; ++j) score[j] += __shfl_xor_sync(~0u, score[j], lanes);
    if (part == 0)
      *reinterpret_cast<float4*>(b.unit_scores() + 4 * tile) =
          make_float4(score[0], score[1], score[2], score[3]);
  }
}

/// x[i] and y[i], each one descending list of 32 keys or two of 16 (`width`), to the best of both.
/// No two keys are equal, but 0, which is none.
template <int kCount>
__device__ __forceinline__ void merge(uint64_t* x, const uint64_t* y, int width) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint64_t other = __shfl_xor_sync(~0u, y[i], width - 1);
    x[i] = x[i] > other ? x[i] : other;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (step == 16 && width == 16) continue;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint64_t other = __shfl_xor_sync(~0u, x[i], step);
      x[i] = (x[i] > other) == ((lane & step) == 0) ? x[i] : other;
    }
  }
}

/// The best of `count` <= kMost descending lists, `stride` apart: lane i gets key i % width. A
/// whole warp.
template <int kMost>
__device__ __forceinline__ uint64_t best_of(const uint64_t* lists, int stride, int count,
                                            int width) {
  const int lane = threadIdx.x % 32, of_register = 32 / width;
  const int list = width == 32 ? 0 : lane / 16, key = lane % width;
  uint64_t x[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    const int from = i * of_register + list;
    x[i] = from < count ? lists[from * stride + key] : 0;
  }
  if constexpr (kMost >= 16)
    if (count > 8 * of_register) merge<8>(x, x + 8, width);
  if constexpr (kMost >= 8)
    if (count > 4 * of_register) merge<4>(x, x + 4, width);
  if (count > 2 * of_register) merge<2>(x, x + 2, width);
  if (count > of_register) merge<1>(x, x + 1, width);
  if (width == 16 && count > 1) {
    const uint64_t other_half = __shfl_xor_sync(~0u, x[0], 16);
    merge<1>(x, &other_half, width);
  }
  return x[0];
}

__device__ __forceinline__ int unit_of(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}

/// Of every 32 units of this rank the best as keys that order as the selection does (0: no
/// candidate), descending; of all those of a warp the best.
template <typename Block>
__device__ __forceinline__ void rank_units(const Block& b) {
  const DecodeRow& row = b.row;
  const DecodeAttention& p = b.p;
  const int units = row.unit1(b.a) - row.unit0(b.a);
  const int width = list_width(b);
  uint64_t* const lists = b.keys() + b.warp * 2 * width;
#pragma unroll 1
  for (int first = b.warp * kChunk; first < units; first += b.warps * kChunk) {
    const int own = first + b.lane, unit = row.unit0(b.a) + own;
    uint32_t order = 0;
    if (own < units) {
      const float score = b.a.plan.unit_sums ? b.unit_scores()[own] : score_of_blocks(b, own);
      if (p.scores != nullptr) p.scores[b.kv_row() * p.score_width + unit] = score;
      if (unit >= row.num_initial(p) && unit < row.first_local(p))
        order = score != score ? 1u : __float_as_uint(score) + 2u;
    }
    const uint64_t own_order = uint64_t{order} << 32 | (kChunk - 1 - b.lane);
    int places[2] = {};  // two chains
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      // As 64 bits, of which the compiler knows half of the other's.
      const uint64_t other = uint64_t{__shfl_sync(~0u, order, i)} << 32 | (kChunk - 1 - i);
      places[i % 2] += other > own_order ? 1 : 0;
    }
    const int place = places[0] + places[1];
    uint64_t* const to = lists + (first == b.warp * kChunk ? 0 : width);
    if (place < width) to[place] = order == 0 ? 0 : uint64_t(order) << 32 | (0xffffffffu - unit);
    __syncwarp();
    if (to == lists) continue;
    uint64_t best = lists[b.lane % width];
    const uint64_t more = lists[width + b.lane % width];
    __syncwarp();
    merge<1>(&best, &more, width);
    if (b.lane < width) lists[b.lane] = best;
  }
  if (p.scores == nullptr) return;
#pragma unroll 1
  for (int unit = row.current + 1 + row.rank * b.threads + threadIdx.x; unit < p.score_width;
       unit += b.ranks * b.threads)
    p.scores[b.kv_row() * p.score_width + unit] = 0.f;
}

/// The best of this rank to all ranks.
template <typename Block>
__device__ __forceinline__ void send_candidates(const Block& b) {
  if (b.warp >= b.ranks) return;
  const int lists = min(b.warps, (b.row.unit1(b.a) - b.row.unit0(b.a) + kChunk - 1) / kChunk);
  const int width = list_width(b);
  const uint64_t best = best_of<kMostWarps>(b.keys(), 2 * width, lists, width);
  if (b.lane >= width) return;
#pragma unroll 1
  for (int to = b.warp; to < b.ranks; to += b.warps)
    b.put(b.candidates() + b.row.rank * width + b.lane, to, best, &b.shared.candidates_there);
}

/// The selected blocks: forced at the start, the best of the candidates of all ranks, forced at the
/// end, where the block of the newest token is the last. One warp.
template <typename Block>
__device__ __forceinline__ void choose(const Block& b) {
  const DecodeRow& row = b.row;
  const int width = list_width(b);
  const uint64_t best = best_of<kMostRanks>(b.candidates(), width, b.ranks, width);
  const int lane = b.lane, initial = row.num_initial(b.p), chosen = initial + row.places(b.p);
  const int first_local = row.first_local(b.p);
  const int unit = unit_of(__shfl_sync(~0u, best, (lane - initial) & 31));
  b.shared.ids[lane] = lane < initial ? lane : lane < chosen ? unit : first_local + lane - chosen;
  if (lane == 0) b.shared.num_ids = chosen + row.current + 1 - first_local;
}

/// Selected ids, ascending, and neighbouring ones as one interval. One warp, lane i has id i.
template <typename Block>
__device__ __forceinline__ void write_selection(const Block& b) {
  const DecodeAttention& p = b.p;
  const int lane = b.lane, count = b.shared.num_ids;
  const int unsorted = lane < count ? b.shared.ids[lane] : INT_MAX;
  int below = 0, id = INT_MAX;
#pragma unroll 8
  for (int i = 0; i < 32; ++i) below += __shfl_sync(~0u, unsorted, i) < unsorted ? 1 : 0;
#pragma unroll 8
  for (int i = 0; i < 32; ++i) {
    const int other = __shfl_sync(~0u, unsorted, i), place = __shfl_sync(~0u, below, i);
    if (place == lane && i < count) id = other;
  }
  if (p.block_idx != nullptr && lane < p.top_n)
    p.block_idx[b.kv_row() * p.top_n + lane] = lane < count ? id : -1;
  if (p.ranges == nullptr) return;
  const int before = __shfl_up_sync(~0u, id, 1), after = __shfl_down_sync(~0u, id, 1);
  const bool starts = lane < count && (lane == 0 || before + 1 != id);
  const bool ends = lane < count && (lane + 1 >= count || after != id + 1);
  const uint32_t all_starts = __ballot_sync(~0u, starts), upto = (2u << lane) - 1;
  int2* to = reinterpret_cast<int2*>(p.ranges) + b.kv_row() * p.top_n;
  const int place = __popc(all_starts & upto) - 1;
  if (starts) to[place].x = id * p.sel_block_size;
  if (ends) to[place].y = min((id + 1) * p.sel_block_size, b.row.t + 1);
  if (lane >= __popc(all_starts) && lane < p.top_n) to[lane] = make_int2(0, 0);
}

}  // namespace nsa::kernels::portable
