// Selected attention, forward, one CTA a (token, KV head): the G heads of a group are the rows of
// the products.
//
// The keys of a row come in tiles of at most 16, each of one run; each of the four warps takes
// every fourth with a ring and a softmax of its own, and the four are joined at the end. Keys
// outside the row's ranges are never read: a partial tile is filled up with its last key, so that
// nothing of an unattended token, NaN included, can reach the row.
#pragma once
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/warp_tiles.cuh"
#include "nsa/kernels/selected/rows/row_attention_launch.h"
#include "nsa/kernels/selected/rows/row_runs.cuh"

namespace nsa::kernels::portable {

struct RowArguments {
  Strided q, k, v;
  const int32_t* ranges;
  void* out;
  float* lse;
  int num_queries, num_keys, num_heads, group_size, num_ranges, first_position;
  int warps_of_row;  // 1 or 4
  float scale_log2;
};

/// A run cut into tiles.
struct TiledRun {
  int start, end;
  int tiles_until;  // tiles of all runs up to and including this one
};

/// The runs of one row cut into tiles; every warp has the same list. Those behind the first 32,
/// which few rows have, lie in shared memory.
struct TileList {
  TiledRun own;           // of this lane; empty runs at the end
  int count_of_first;     // tiles of the first 32 runs
  int count;              // tiles of the row
  const TiledRun* later;  // [32]

  /// `later` is written where the problem has more than 32 ranges; all threads call.
  __device__ static TileList of(const RowArguments& a, const int2* ranges, int position,
                                TiledRun* later) {
    const int limit = min(position + 1, a.num_keys);
    TileList list;
    list.later = later;
    if (a.num_ranges <= 32) {
      RowRuns<1> runs;
      if (!runs.take_ordered(ranges, a.num_ranges, limit))
        runs = RowRuns<1>::of(ranges, a.num_ranges, limit);
      list.own = cut(runs.start[0], runs.end[0], 0);
      list.count = list.count_of_first = last_of_lanes(list.own.tiles_until);
      return list;
    }
    const auto runs = RowRuns<2>::of(ranges, a.num_ranges, limit);
    list.own = cut(runs.start[0], runs.end[0], 0);
    list.count_of_first = last_of_lanes(list.own.tiles_until);
    const TiledRun second = cut(runs.start[1], runs.end[1], list.count_of_first);
    list.count = last_of_lanes(second.tiles_until);
    if (threadIdx.x < 32) later[threadIdx.x] = second;
    __syncthreads();
    return list;
  }

  /// First key of tile i, or of the last one where i lies behind it, and how many keys it has.
  __device__ int2 tile(int i) const {
    i = min(i, count - 1);
    TiledRun run;
    if (i < count_of_first || count == count_of_first) {
      const int source = first_above(own.tiles_until, i);
      run.tiles_until = __shfl_sync(~0u, own.tiles_until, source);
      run.end = __shfl_sync(~0u, own.end, source);
      run.start = __shfl_sync(~0u, own.start, source);
    } else {
      run = later[first_above(later[threadIdx.x % 32].tiles_until, i)];
    }
    const int run_tiles = (run.end - run.start + kWarpTile - 1) / kWarpTile;
    const int first = run.start + (i - (run.tiles_until - run_tiles)) * kWarpTile;
    return make_int2(first, min(kWarpTile, run.end - first));
  }

 private:
  __device__ static int last_of_lanes(int x) { return __shfl_sync(~0u, x, 31); }
  __device__ static int first_above(int tiles_until, int i) {
    return max(0, __ffs(__ballot_sync(~0u, tiles_until > i)) - 1);
  }
  __device__ static TiledRun cut(int start, int end, int tiles_before) {
    return {start, end, tiles_before + sum_of_lanes((end - start + kWarpTile - 1) / kWarpTile)};
  }
};

template <int DK, int DV, int kKeyStages, typename T>
struct RowKernel {
  using Tiles = WarpTiles<DK, DV, T>;
  static constexpr int kWarps = 4, kThreads = kWarps * 32;
  // Keys run one tile further ahead than values: two blocks of threads fit an SM that way, and as
  // much as possible is in flight.
  static constexpr int kValueStages = kKeyStages - 1;
  static constexpr int kRingBytes =
      kKeyStages * Tiles::kKeyBytes + kValueStages * Tiles::kValueBytes;
  static constexpr int kSharedBytes = kWarps * kRingBytes;
  static_assert(kRingBytes >= Tiles::kPartBytes, "a ring has room for the parts of a warp");
  static constexpr int kBlocks = kSharedBytes <= 114 * 1024 ? 2 : 1;  // on an SM, at least

  /// What the warps tell each other beside their outputs; before that, runs of the row.
  union Exchange {
    float2 stats[kWarps][16];  // maximum, sum
    TiledRun later_runs[32];
  };

  __device__ static void run(const RowArguments& a) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Place place(a, warp);
    if (place.token >= a.num_queries) return;  // a warp that is a row's only one
    __shared__ Exchange exchange;
    uint32_t q[DK / 16][4];
    load_queries(a, place.token, q);
    const TileList list =
        TileList::of(a, reinterpret_cast<const int2*>(a.ranges) + place.row(a) * a.num_ranges,
                     a.first_position + place.token, exchange.later_runs);
    const int count = place.tiles_of(list.count);
    const auto tile = [&](int i) { return list.tile(i * warps_of(a) + place.part); };

    char* const own = dynamic_shared() + warp * kRingBytes;
    const uint32_t keys = shared_address(own), values = keys + kKeyStages * Tiles::kKeyBytes;
    const uint32_t key_place = Tiles::template offset<DK>(lane / 8, lane % 8),
                   value_place = Tiles::template offset<DV>(lane / 8, lane % 8);
    const T* const k = static_cast<const T*>(a.k.data) + blockIdx.z * a.k.batch +
                       blockIdx.y * a.k.head + lane % 8 * 8;
    const T* const v = static_cast<const T*>(a.v.data) + blockIdx.z * a.v.batch +
                       blockIdx.y * a.v.head + lane % 8 * 8;
    // An empty group keeps the count of groups.
    const auto fetch_keys = [&](int i, int2 from) {
      if (i < count)
        copy_tile<DK>(keys + i % kKeyStages * Tiles::kKeyBytes + key_place, k, a.k.token, from);
      commit_copies();
    };
    const auto fetch_values = [&](int i, int2 from) {
      if (i < count)
        copy_tile<DV>(values + i % kValueStages * Tiles::kValueBytes + value_place, v, a.v.token,
                      from);
      commit_copies();
    };
    int2 tiles[kKeyStages];  // tiles i .. i + kKeyStages - 1 of the loop below
#pragma unroll
    for (int i = 0; i < kKeyStages - 1; ++i) tiles[i] = tile(i);
    fetch_keys(0, tiles[0]);
#pragma unroll
    for (int i = 0; i < kValueStages - 1; ++i) {
      fetch_values(i, tiles[i]);
      fetch_keys(i + 1, tiles[i + 1]);
    }
    WarpSums<DV> sums;
    sums.clear();
    for (int i = 0; i < count; ++i) {
      wait_copies<2 * kValueStages - 3>();
      __syncwarp();  // tile i is there, and all lanes are done with tile i - 1
      tiles[kKeyStages - 1] = tile(i + kKeyStages - 1);
      fetch_values(i + kValueStages - 1, tiles[kValueStages - 1]);
      fetch_keys(i + kKeyStages - 1, tiles[kKeyStages - 1]);
      Tiles::consume(
          keys + i % kKeyStages * Tiles::kKeyBytes, values + i % kValueStages * Tiles::kValueBytes,
          tiles[0].y, q, a.scale_log2, [](const auto&, const auto&) {}, sums);
#pragma unroll
      for (int t = 0; t + 1 < kKeyStages; ++t) tiles[t] = tiles[t + 1];
    }
    wait_copies<0>();
    place.meet();  // no lane reads a tile any more, no warp runs
    Tiles::leave(sums, reinterpret_cast<float*>(own), exchange.stats[warp]);
    place.meet();
    join(a, place, exchange);
  }

 private:
  /// Wide rows leave no registers for a choice.
  __device__ static int warps_of(const RowArguments& a) {
    return DV > kMostColumnsOfWarp ? kWarps : a.warps_of_row;
  }
  /// What a warp has of which row.
  struct Place {
    int warps;       // of the row
    int first_warp;  // of the CTA, that has the row
    int part, token;
    __device__ Place(const RowArguments& a, int warp)
        : warps(warps_of(a)),
          first_warp(warps == 1 ? warp : 0),
          part(warp - first_warp),
          token(warps == 1 ? blockIdx.x * kWarps + warp : blockIdx.x) {}
    __device__ int64_t row(const RowArguments& a) const {
      return (int64_t(blockIdx.z) * a.num_queries + token) * gridDim.y + blockIdx.y;
    }
    __device__ int tiles_of(int all) const {
      return warps == 1 ? all : (all - part + kWarps - 1) / kWarps;
    }
    __device__ void meet() const {
      if (warps == 1)
        __syncwarp();
      else
        __syncthreads();
    }
  };

  /// Q as A operand: rows lane / 4 and + 8, pairs of columns; heads behind the group are 0.
  __device__ __forceinline__ static void load_queries(const RowArguments& a, int token,
                                                      uint32_t (&q)[DK / 16][4]) {
    const int lane = threadIdx.x % 32;
    const T* const from = static_cast<const T*>(a.q.data) + blockIdx.z * a.q.batch +
                          token * a.q.token + int64_t(blockIdx.y) * a.group_size * a.q.head;
#pragma unroll
    for (int c = 0; c < DK / 16; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int head = lane / 4 + (i % 2) * 8, column = c * 16 + (lane % 4) * 2 + (i / 2) * 8;
        q[c][i] = head < a.group_size
                      ? *reinterpret_cast<const uint32_t*>(from + head * a.q.head + column)
                      : 0u;
      }
  }

  /// Begins to copy a tile's rows; zeros behind its last key. `to` and `from` are where this lane's
  /// piece of row lane / 8 of a tile goes, and where that of key 0 is.
  template <int kColumns>
  __device__ __forceinline__ static void copy_tile(uint32_t to, const T* from, int64_t token_stride,
                                                   int2 tile) {
    const int row = threadIdx.x % 32 / 8;
#pragma unroll
    for (int pass = 0; pass < 4; ++pass) {
      const bool valid = row + 4 * pass < tile.y;
      const T* const source = from + (valid ? tile.x + row + 4 * pass : tile.x) * token_stride;
      // Of rows 4 apart one bit of the swizzle differs.
      const uint32_t target = (to ^ (pass % 2 * 64)) + pass * 4 * kColumns * 2;
#pragma unroll
      for (int segment = 0; segment < kColumns / 64; ++segment)
        copy_async_or_zero(target + segment * 128, source + segment * 64, valid);
    }
  }

  /// Joins the softmaxes of a row's warps and writes the rows of the group, four columns a thread.
  __device__ static void join(const RowArguments& a, const Place& place, const Exchange& exchange) {
    const int64_t first_row = place.row(a) * a.group_size;  // [B, S, Hq] in order
    for (int i = place.part * 32 + threadIdx.x % 32; i < a.group_size * (DV / 4);
         i += place.warps * 32) {
      const int head = i / (DV / 4), quarter = i % (DV / 4);
      float2 stats[kWarps];
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        stats[w] = w < place.warps ? exchange.stats[place.first_warp + w][head]
                                   : make_float2(-INFINITY, 0.f);
      const float2 all = joined(stats, a.scale_log2);
      const float inverse = all.y == 0.f ? 0.f : 1.f / all.y;
      float4 out = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        if (w >= place.warps) break;
        const float share = share_of(stats[w].x, all.x, a.scale_log2) * inverse;
        const float4 part = reinterpret_cast<const float4*>(
            dynamic_shared() +
            (place.first_warp + w) * kRingBytes)[Tiles::place(head, quarter) / 4];
        out.x += share * part.x, out.y += share * part.y;
        out.z += share * part.z, out.w += share * part.w;
      }
      *reinterpret_cast<uint2*>(static_cast<T*>(a.out) + (first_row + head) * DV + quarter * 4) =
          make_uint2(pack<T>(out.x, out.y), pack<T>(out.z, out.w));
      if (quarter == 0)
        a.lse[first_row + head] =
            all.y == 0.f ? -INFINITY
                         : ((all.x == -INFINITY ? 0.f : all.x) * a.scale_log2 + log2f(all.y)) /
                               1.4426950408889634f;
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocks)
    row_attention_kernel(const __grid_constant__ RowArguments a) {
  Kernel::run(a);
}

template <int DK, int DV, int kKeyStages, typename T>
cudaError_t launch_row_attention(const RowAttention& p, int warps_of_row, cudaStream_t stream) {
  using Kernel = RowKernel<DK, DV, kKeyStages, T>;
  const RowArguments a{p.q,           p.k,
                       p.v,           p.ranges,
                       p.out,         p.lse,
                       p.num_queries, p.num_keys,
                       p.num_heads,   p.num_heads / p.num_kv_heads,
                       p.num_ranges,  p.first_position,
                       warps_of_row,  p.scale * 1.4426950408889634f};
  const int rows_of_cta = Kernel::kWarps / warps_of_row;
  return launch(row_attention_kernel<Kernel>,
                dim3((p.num_queries + rows_of_cta - 1) / rows_of_cta, p.num_kv_heads, p.batch),
                Kernel::kThreads, Kernel::kSharedBytes, stream, a);
}

}  // namespace nsa::kernels::portable
