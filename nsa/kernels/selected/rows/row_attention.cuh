// Selected attention, forward, one CTA a (token, KV head): the G heads of a group are the rows of
// the products.
//
// The keys of a row come in tiles of 64; each of the four warps takes 16 keys of every tile with a
// softmax of its own, and the four are merged at the end. Keys outside the row's ranges are never
// read: a partial tile is filled up with zeros, so that nothing of an unattended token, NaN
// included, can reach the row.
#pragma once
#include <cfloat>

#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/tiles.cuh"
#include "nsa/kernels/selected/rows/row_attention.h"
#include "nsa/kernels/selected/rows/row_runs.cuh"

namespace nsa::kernels::portable {

struct RowArguments {
  Strided q, k, v;
  const int32_t* ranges;
  void* out;
  float* lse;
  int num_queries, num_keys, num_heads, group_size, num_ranges, first_position;
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
      const auto runs = RowRuns<1>::of(ranges, a.num_ranges, limit);
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

  /// First key of tile i, or of the last one where i lies behind it, and how many keys of it are
  /// attended (1 to 64).
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
    const int run_tiles = (run.end - run.start + kTileKeys - 1) / kTileKeys;
    const int first = run.start + (i - (run.tiles_until - run_tiles)) * kTileKeys;
    return make_int2(first, min(kTileKeys, run.end - first));
  }

 private:
  __device__ static int last_of_lanes(int x) { return __shfl_sync(~0u, x, 31); }
  __device__ static int first_above(int tiles_until, int i) {
    return max(0, __ffs(__ballot_sync(~0u, tiles_until > i)) - 1);
  }
  __device__ static TiledRun cut(int start, int end, int tiles_before) {
    return {start, end, tiles_before + sum_of_lanes((end - start + kTileKeys - 1) / kTileKeys)};
  }
};

template <int DK, int DV, int kKeyStages, typename T>
struct RowKernel {
  static constexpr int kThreads = 128;
  // Keys run one tile further ahead than values: two blocks of threads fit an SM that way, and as
  // much as possible is in flight.
  static constexpr int kValueStages = kKeyStages - 1;
  static constexpr int kKeyBytes = kTileKeys * DK * 2, kValueBytes = kTileKeys * DV * 2;
  static constexpr int kTileBytes = kKeyStages * kKeyBytes + kValueStages * kValueBytes;
  static constexpr int kMergeBytes = 4 * 16 * DV * 4;
  static constexpr int kSharedBytes = kTileBytes > kMergeBytes ? kTileBytes : kMergeBytes;

  __device__ static void run(const RowArguments& a) {
    char* const shared = dynamic_shared();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int token = blockIdx.x, kv_head = blockIdx.y, batch = blockIdx.z;
    const int64_t row = (int64_t(batch) * a.num_queries + token) * gridDim.y + kv_head;
    __shared__ MergeRows merge_rows;
    const TileList list =
        TileList::of(a, reinterpret_cast<const int2*>(a.ranges) + row * a.num_ranges,
                     a.first_position + token, merge_rows.later_runs);
    const T* k = static_cast<const T*>(a.k.data) + batch * a.k.batch + kv_head * a.k.head;
    const T* v = static_cast<const T*>(a.v.data) + batch * a.v.batch + kv_head * a.v.head;
    const uint32_t base = shared_address(shared);
    const uint32_t value_base = base + kKeyStages * kKeyBytes;
    // An empty group keeps the count of groups.
    const auto fetch_keys = [&](int i, int2 tile) {
      if (i < list.count)
        copy_tile<DK>(base + (i % kKeyStages) * kKeyBytes, k + tile.x * a.k.token, a.k.token,
                      tile.y);
      commit_copies();
    };
    const auto fetch_values = [&](int i, int2 tile) {
      if (i < list.count)
        copy_tile<DV>(value_base + (i % kValueStages) * kValueBytes, v + tile.x * a.v.token,
                      a.v.token, tile.y);
      commit_copies();
    };
    int2 tiles[kKeyStages];  // tiles i .. i + kKeyStages - 1 of the loop below
#pragma unroll
    for (int i = 0; i < kKeyStages - 1; ++i) tiles[i] = list.tile(i);
    fetch_keys(0, tiles[0]);
#pragma unroll
    for (int i = 0; i < kValueStages - 1; ++i) {
      fetch_values(i, tiles[i]);
      fetch_keys(i + 1, tiles[i + 1]);
    }

    // Q as A operand: rows lane / 4 and + 8, pairs of columns; heads behind the group are 0.
    uint32_t q_frag[DK / 16][4];
    const T* q = static_cast<const T*>(a.q.data) + batch * a.q.batch + token * a.q.token +
                 int64_t(kv_head) * a.group_size * a.q.head;
#pragma unroll
    for (int c = 0; c < DK / 16; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int head = lane / 4 + (i % 2) * 8, column = c * 16 + (lane % 4) * 2 + (i / 2) * 8;
        q_frag[c][i] = head < a.group_size
                           ? *reinterpret_cast<const uint32_t*>(q + head * a.q.head + column)
                           : 0u;
      }

    float out[DV / 8][4] = {};
    float peak[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f};
    for (int i = 0; i < list.count; ++i) {
      wait_copies<2 * kValueStages - 3>();
      __syncthreads();  // tile i is there, and all threads are done with tile i - 1
      tiles[kKeyStages - 1] = list.tile(i + kKeyStages - 1);
      fetch_values(i + kValueStages - 1, tiles[kValueStages - 1]);
      fetch_keys(i + kKeyStages - 1, tiles[kKeyStages - 1]);
      const int attended = tiles[0].y;
#pragma unroll
      for (int t = 0; t + 1 < kKeyStages; ++t) tiles[t] = tiles[t + 1];
      if (warp * 16 >= attended) continue;
      const uint32_t k_tile = base + (i % kKeyStages) * kKeyBytes;
      const uint32_t v_tile = value_base + (i % kValueStages) * kValueBytes;
      float scores[2][4] = {}, odd[2][4] = {};  // two tiles of 8 keys; two chains each
#pragma unroll
      for (int c = 0; c < DK / 16; ++c) {
        uint32_t frag[4];
        load_matrices(frag, k_tile + tile_offset<DK>(warp * 16 + (lane / 16) * 8 + lane % 8,
                                                     c * 2 + (lane / 8) % 2));
        multiply_add<T>(c % 2 ? odd[0] : scores[0], q_frag[c], frag[0], frag[1]);
        multiply_add<T>(c % 2 ? odd[1] : scores[1], q_frag[c], frag[2], frag[3]);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) scores[j / 4][j % 4] += odd[j / 4][j % 4];
      if (attended < warp * 16 + 16) {
#pragma unroll
        for (int j = 0; j < 8; ++j)
          if (warp * 16 + (j / 4) * 8 + (lane % 4) * 2 + j % 2 >= attended)
            scores[j / 4][j % 4] = -INFINITY;
      }
      float rescale[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float top = fmaxf(fmaxf(scores[0][2 * r], scores[0][2 * r + 1]),
                          fmaxf(scores[1][2 * r], scores[1][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        top = fmaxf(top, peak[r]);
        const float base = top == -INFINITY ? 0.f : top;
        rescale[r] = peak[r] == -INFINITY ? 0.f : exp2f((peak[r] - base) * a.scale_log2);
        peak[r] = top;
        float part = 0.f;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          // Subtracted first: the product of a large maximum and the scale would be rounded.
          float& s = scores[j / 2][2 * r + j % 2];
          s = exp2f((s - base) * a.scale_log2);
          part += s;
        }
        sum[r] = sum[r] * rescale[r] + part;
      }
      if (__any_sync(~0u, rescale[0] != 1.f || rescale[1] != 1.f)) {
#pragma unroll
        for (int c = 0; c < DV / 8; ++c)
#pragma unroll
          for (int j = 0; j < 4; ++j) out[c][j] *= rescale[j / 2];
      }
      const uint32_t p_frag[4] = {
          pack<T>(scores[0][0], scores[0][1]), pack<T>(scores[0][2], scores[0][3]),
          pack<T>(scores[1][0], scores[1][1]), pack<T>(scores[1][2], scores[1][3])};
#pragma unroll
      for (int c = 0; c < DV / 16; ++c) {
        uint32_t frag[4];
        load_matrices_transposed(
            frag, v_tile + tile_offset<DV>(warp * 16 + lane % 16, c * 2 + lane / 16));
        multiply_add<T>(out[2 * c], p_frag, frag[0], frag[1]);
        multiply_add<T>(out[2 * c + 1], p_frag, frag[2], frag[3]);
      }
    }
    wait_copies<0>();
    __syncthreads();
    merge(a, row, out, peak, sum, reinterpret_cast<float*>(shared), merge_rows);
  }

  /// What the warps tell each other beside their outputs; before that, runs of the row.
  struct Softmaxes {
    float peaks[4][16], sums[4][16];
  };
  union MergeRows {
    Softmaxes softmaxes;
    TiledRun later_runs[32];
  };

  /// Joins the four warps' softmaxes and writes the rows of the group.
  __device__ static void merge(const RowArguments& a, int64_t row, const float (&out)[DV / 8][4],
                               const float (&peak)[2], float (&sum)[2], float* parts,
                               MergeRows& rows) {
    auto &peaks = rows.softmaxes.peaks, &sums = rows.softmaxes.sums;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
      const int head = lane / 4 + 8 * r;
      if (lane % 4 == 0) peaks[warp][head] = peak[r], sums[warp][head] = sum[r];
#pragma unroll
      for (int c = 0; c < DV / 8; ++c)
        *reinterpret_cast<float2*>(parts + (warp * 16 + head) * DV + c * 8 + (lane % 4) * 2) =
            make_float2(out[c][2 * r], out[c][2 * r + 1]);
    }
    __syncthreads();
    const int64_t first_row = row * a.group_size;  // [B, S, Hq] in order
    for (int i = threadIdx.x; i < a.group_size * (DV / 2); i += kThreads) {
      const int head = i / (DV / 2), column = i % (DV / 2) * 2;
      float top = peaks[0][head];
#pragma unroll
      for (int w = 1; w < 4; ++w) top = fmaxf(top, peaks[w][head]);
      const float base = top == -INFINITY ? 0.f : top;
      float total = 0.f, x = 0.f, y = 0.f;
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if (peaks[w][head] == -INFINITY && sums[w][head] == 0.f) continue;  // a warp without keys
        const float weight = exp2f((peaks[w][head] - base) * a.scale_log2);
        const float2 part = *reinterpret_cast<const float2*>(parts + (w * 16 + head) * DV + column);
        total += weight * sums[w][head];
        x += weight * part.x;
        y += weight * part.y;
      }
      const float inverse = total == 0.f ? 0.f : 1.f / total;
      *reinterpret_cast<uint32_t*>(static_cast<T*>(a.out) + (first_row + head) * DV + column) =
          pack<T>(x * inverse, y * inverse);
      if (column == 0)
        a.lse[first_row + head] =
            total == 0.f ? -INFINITY : (base * a.scale_log2 + log2f(total)) / 1.4426950408889634f;
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads)
    row_attention_kernel(const __grid_constant__ RowArguments a) {
  Kernel::run(a);
}

template <int DK, int DV, int kKeyStages, typename T>
cudaError_t launch_row_attention(const RowAttention& p, cudaStream_t stream) {
  using Kernel = RowKernel<DK, DV, kKeyStages, T>;
  const RowArguments a{p.q,
                       p.k,
                       p.v,
                       p.ranges,
                       p.out,
                       p.lse,
                       p.num_queries,
                       p.num_keys,
                       p.num_heads,
                       p.num_heads / p.num_kv_heads,
                       p.num_ranges,
                       p.first_position,
                       p.scale * 1.4426950408889634f};
  return launch(row_attention_kernel<Kernel>, dim3(p.num_queries, p.num_kv_heads, p.batch),
                Kernel::kThreads, Kernel::kSharedBytes, stream, a);
}

}  // namespace nsa::kernels::portable
