// Interval attention, forward, on mma.sync and cp.async.
//
// A CTA has 64 rows of a KV head; a row is a (token, head of the group) pair, row = token * G +
// head, so K and V are read once for all heads of a group. Each of the four warps computes 16 rows;
// tiles of 64 keys and their values come into two places of shared memory in alternation, the next
// one while this one is multiplied. Where the values have 256 columns, two CTAs share them:
// registers do not hold the sums of all of them. What follows: rows that are not finite (below),
// the choice of blocks (interval_selection.cuh).
#pragma once
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/common/online_softmax.cuh"
#include "nsa/kernels/common/quad.cuh"
#include "nsa/kernels/interval/sm80/interval_selection.cuh"
#include "nsa/kernels/interval/sm80/interval_tiles.cuh"

namespace nsa::kernels::sm80 {

template <int DK, int DV, typename T>
struct IntervalKernel {
  static constexpr int kThreads = 128, kStages = 2;
  static constexpr int kCtas = DK == 64 ? 3 : 2;    // an SM, by their registers
  static constexpr int kParts = DV == 256 ? 2 : 1;  // CTAs of a tile; blockIdx.y is one
  static constexpr int kColumns = DV / kParts;      // of the values
  static constexpr int kKeyBytes = kTileKeys * DK * 2, kValueBytes = kTileKeys * kColumns * 2;
  using Selection = IntervalSelection<DK, T>;

  /// Lists and sums of the selection pass take the place of V.
  static int shared_bytes(const IntervalArguments& a) {
    const int values = kStages * kValueBytes,
              lists = a.selection.block_idx == nullptr
                          ? 0
                          : Selection::shared_bytes(a.selection, a.overlap, a.tokens_per_tile);
    return kStages * kKeyBytes + (values > lists ? values : lists);
  }

  using Query = uint32_t[DK / 16][4];
  using Out = float[kColumns / 8][4];

  __device__ static int first_column() {
    return kParts == 1 ? 0 : static_cast<int>(blockIdx.y) * kColumns;
  }

  __device__ static void run(const IntervalArguments& a) {
    char* const shared = dynamic_shared();
    const uint32_t keys = shared_address(shared), values = keys + kStages * kKeyBytes;
    const IntervalTile tile = IntervalTile::of(a, static_cast<int>(blockIdx.x));
    const IntervalMask mask(a, tile);
    const T* k = static_cast<const T*>(a.k.data) + tile.batch * a.k.batch +
                 tile.kv_head * a.k.head + tile.first_key * a.k.token;
    const T* v = static_cast<const T*>(a.v.data) + tile.batch * a.v.batch +
                 tile.kv_head * a.v.head + tile.first_key * a.v.token + first_column();
    const int steps = tile.steps();
    const auto fetch = [&](int step) {
      const int first = tile.keys.begin + step * kTileKeys, stage = step % kStages;
      if (step < steps) {
        copy_tile<DK>(keys + stage * kKeyBytes, k + first * a.k.token, a.k.token,
                      min(tile.keys.end - first, kTileKeys));
        copy_tile<kColumns>(values + stage * kValueBytes, v + first * a.v.token, a.v.token,
                            min(tile.keys.end - first, kTileKeys));
      }
      commit_copies();
    };

    fetch(0);
    Query q;
    load_query(a, tile, q);
    float lse[2];
    unsigned bad = 0;  // rows with an output that is not finite
    // Once; where an output is not finite, once more with zeros in the place of such values of V. A
    // row that attends none of them then has the bits it has without them.
#pragma unroll 1
    for (bool again = false;; again = true) {
      Out out = {};
      OnlineSoftmax softmax;
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        const int first = tile.keys.begin + step * kTileKeys, stage = step % kStages;
        wait_copies<0>();
        __syncthreads();  // this tile is there, and all threads are done with the one before it
        fetch(step + 1);
        if (again) clear_bad_values(shared + kStages * kKeyBytes + stage * kValueBytes);
        if (!mask.meets(first)) continue;
        float scores[8][4];
        multiply_keys<0, DK, T>(q, keys + stage * kKeyBytes, scores);
        mask.apply(first, scores);
        softmax.step(scores, a.scale_log2);
        softmax.rescale_rows(out);
        multiply_values<kColumns, T>(scores, values + stage * kValueBytes, out);
      }
      softmax.finish();
      if (again) {
        repair(a, lse, bad, softmax, out);
        break;
      }
      bad = store(a, softmax, out, lse);
      if (!__syncthreads_or(bad != 0)) break;  // all threads are done with the tiles
      fetch(0);
    }
    if (a.selection.block_idx == nullptr || first_column() != 0) return;
    __syncthreads();
    Selection::run(a, q, lse, keys, shared + kStages * kKeyBytes);
  }

  /// Q as A operand, from memory: rows lane / 4 and + 8, pairs of columns; unused rows are 0.
  __device__ static void load_query(const IntervalArguments& a, const IntervalTile& tile,
                                    Query& q) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const IntervalRow row = tile.row(a, first_row_of_thread() + 8 * r);
      const T* from = static_cast<const T*>(a.q.data) + tile.batch * a.q.batch +
                      row.token * a.q.token + row.head * a.q.head + threadIdx.x % 4 * 2;
#pragma unroll
      for (int c = 0; c < DK / 16; ++c)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          q[c][r + 2 * i] =
              row.used ? *reinterpret_cast<const uint32_t*>(from + c * 16 + i * 8) : 0u;
    }
  }

  /// Output and lse to memory; bit r of the result: row r is not finite, in any of its threads.
  __device__ static unsigned store(const IntervalArguments& a, const OnlineSoftmax& softmax,
                                   const Out& out, float (&lse)[2]) {
    const IntervalTile tile = IntervalTile::again(a);
    unsigned bad = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const IntervalRow row = tile.row(a, first_row_of_thread() + 8 * r);
      const float sum = softmax.sum[r];
      lse[r] = sum == 0.f ? -INFINITY : (softmax.peak[r] * a.scale_log2 + log2f(sum)) / kLog2e;
      if (row.used && threadIdx.x % 4 == 0 && first_column() == 0) a.lse[row.place] = lse[r];
      const bool finite = store_row(a, row.place, r, row.used, sum, out);
      if (row.used && !finite) bad |= 1u << r;
    }
    bad |= __shfl_xor_sync(~0u, bad, 1);
    return bad | __shfl_xor_sync(~0u, bad, 2);
  }
  /// Row r of every quad; whether it is finite. All threads of a warp call.
  __device__ static bool store_row(const IntervalArguments& a, int64_t place, int r, bool writes,
                                   float sum, const Out& out) {
    const float inverse = sum == 0.f ? 0.f : 1.f / sum;
    uint4* const to =
        reinterpret_cast<uint4*>(static_cast<T*>(a.out) + place * DV + first_column()) +
        threadIdx.x % 4;
    float probe = 0.f;  // what is not finite stays so in a sum
#pragma unroll
    for (int c = 0; c < kColumns / 32; ++c) {
      float eight[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        eight[i] = (r == 0 ? out[c * 4 + i / 2][i % 2] : out[c * 4 + i / 2][2 + i % 2]) * inverse;
        probe += eight[i];
      }
      const uint4 whole = whole_columns<T>(eight);
      if (writes) to[c * 4] = whole;
    }
    return isfinite(probe);
  }

  /// Zeros for the values of a tile that are not finite. All threads call.
  __device__ static void clear_bad_values(char* tile) {
    T* const values = reinterpret_cast<T*>(tile);
    for (int i = threadIdx.x; i < kTileKeys * kColumns; i += kThreads)
      if (!isfinite(float(values[i]))) values[i] = T(0.f);
    __syncthreads();
  }

  /// Rows that were bad: from `out`, or computed from their own keys alone where these are not
  /// finite.
  __device__ static void repair(const IntervalArguments& a, const float (&lse)[2], unsigned bad,
                                const OnlineSoftmax& softmax, const Out& out) {
    const IntervalTile tile = IntervalTile::again(a);
    unsigned mended = 0;  // rows of this thread that `out` has right
#pragma unroll 1
    for (int i = 0; i < 16; ++i) {
      const int source = i % 8 * 4, r = i / 8;                  // lane and which of its rows
      if (!(__shfl_sync(~0u, bad, source) >> r & 1)) continue;  // the same for every lane
      const float own_lse = __shfl_sync(~0u, r == 0 ? lse[0] : lse[1], source);
      const IntervalRow row = tile.row(a, static_cast<int>(threadIdx.x / 32 * 16) + i);
      if (plain_row(a, tile, row, own_lse) && threadIdx.x % 32 / 4 == i % 8) mended |= 1u << r;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
      store_row(a, tile.row(a, first_row_of_thread() + 8 * r).place, r, mended >> r & 1,
                softmax.sum[r], out);
  }
  /// A row from its own keys only, one warp, in fp32; written if it is not finite.
  __device__ static bool plain_row(const IntervalArguments& a, const IntervalTile& tile,
                                   const IntervalRow& row, float lse) {
    const int lane = threadIdx.x % 32, batch = tile.batch, kv_head = tile.kv_head;
    const T* q = static_cast<const T*>(a.q.data) + batch * a.q.batch + row.token * a.q.token +
                 row.head * a.q.head;
    const T* k = static_cast<const T*>(a.k.data) + batch * a.k.batch + kv_head * a.k.head +
                 tile.first_key * a.k.token;
    const T* v = static_cast<const T*>(a.v.data) + batch * a.v.batch + kv_head * a.v.head +
                 tile.first_key * a.v.token + first_column();
    T* const out = static_cast<T*>(a.out) + row.place * DV + first_column();
    float total[kColumns / 32] = {};
#pragma unroll 1
    for (int key = row.keys.begin; key < row.keys.end; ++key) {
      float dot = 0.f;
      for (int c = lane; c < DK; c += 32) dot += float(q[c]) * float(k[key * a.k.token + c]);
#pragma unroll
      for (int mask = 16; mask > 0; mask /= 2) dot += __shfl_xor_sync(~0u, dot, mask);
      const float p = fast_exp2(dot * a.scale_log2 - lse * kLog2e);
#pragma unroll
      for (int i = 0; i < kColumns / 32; ++i)
        total[i] += p * float(v[key * a.v.token + i * 32 + lane]);
    }
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kColumns / 32; ++i) finite &= isfinite(total[i]);
    if (__all_sync(~0u, finite)) return true;
#pragma unroll
    for (int i = 0; i < kColumns / 32; ++i) out[i * 32 + lane] = T(total[i]);
    return false;
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kCtas)
    interval_attention_kernel(const __grid_constant__ IntervalArguments a) {
  Kernel::run(a);
}

/// The choice of blocks is made where p.selection asks for it.
template <int DK, int DV, typename T>
cudaError_t launch_interval_attention(const IntervalAttention& p, cudaStream_t stream) {
  using Kernel = IntervalKernel<DK, DV, T>;
  const bool selects = p.selection.block_idx != nullptr;
  const int group = p.num_heads / p.num_kv_heads;
  const sm90::RowTiling tiling = sm90::row_tiling(group, kTileRows);
  IntervalArguments a{};
  a.q = p.q, a.k = p.k, a.v = p.v, a.out = p.out, a.lse = p.lse;
  a.num_queries = p.num_queries, a.num_keys = p.num_keys, a.num_heads = p.num_heads,
  a.group_size = group, a.first_position = p.first_position;
  a.row_group = a.heads = tiling.heads, a.tokens_per_tile = tiling.tokens;
  if (selects) {  // a warp has whole tokens, or a token whole warps
    for (a.row_group = 1; a.row_group < group;) a.row_group *= 2;
    if (a.row_group > kTileRows) return cudaErrorInvalidValue;
    a.tokens_per_tile = kTileRows / a.row_group;
    a.selection = p.selection, a.by_sel_block = Divisor(p.selection.sel_block_size);
    a.strides = p.selection.sel_block_size / p.rule.stride;
    a.overlap = p.rule.extent / p.rule.stride - 1;
  }
  a.documents = p.documents;
  a.tiles = p.documents != nullptr ? p.num_document_tiles
                                   : (p.num_queries + a.tokens_per_tile - 1) / a.tokens_per_tile;
  const int64_t head_parts = int64_t{p.batch} * p.num_kv_heads * tiling.parts,
                units = head_parts * a.tiles;
  if (units == 0) return cudaSuccess;
  if (units > INT32_MAX) return cudaErrorInvalidValue;
  a.by_row_group = Divisor(a.row_group), a.by_head_parts = Divisor(static_cast<int>(head_parts));
  a.by_parts = Divisor(tiling.parts), a.by_kv_heads = Divisor(p.num_kv_heads);
  a.by_stride = Divisor(p.rule.stride), a.rule = p.rule, a.scale_log2 = p.scale * kLog2e;
  return launch(interval_attention_kernel<Kernel>,
                dim3(static_cast<unsigned>(units), Kernel::kParts), Kernel::kThreads,
                Kernel::shared_bytes(a), stream, a);
}

}  // namespace nsa::kernels::sm80
