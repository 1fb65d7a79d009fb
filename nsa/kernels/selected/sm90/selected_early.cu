// What precedes and follows the whole tiles of the selected branch's backward pass.
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/interval/backward_chunks.h"
#include "nsa/kernels/interval/sm90/pair_gradients.cuh"
#include "nsa/kernels/interval/sm90/range_tiles.cuh"
#include "nsa/kernels/selected/sm90/selected_early_launch.h"

namespace nsa::kernels::sm90 {
namespace {

constexpr int kThreads = 256;

/// A thread a row of [B, first queries, Hkv].
__global__ void __launch_bounds__(kThreads)
    read_words_kernel(const __grid_constant__ SelectedEarly e, const int2* ranges, int num_ranges) {
  const IntervalAttention& f = e.problem.forward;
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index == 0) {
    *e.plan.bad = 0;
    *e.words.infinity = INFINITY;
  }
  const int rows = f.num_queries * f.num_kv_heads;
  if (index >= rows * f.batch) return;
  const int batch = index / rows, token = index % rows / f.num_kv_heads,
            kv_head = index % f.num_kv_heads;
  const int2* own =
      ranges +
      ((int64_t(batch) * e.words.tokens_of_batch + token) * f.num_kv_heads + kv_head) * num_ranges;
  const int limit = min(f.first_position + token + 1, f.num_keys);
  uint64_t word = 0;
  bool whole = true;
#pragma unroll 4
  for (int i = 0; i < num_ranges; ++i) {
    const RangeTiles tiles(own[i], limit);
    word |= tiles.bits();
    whole &= tiles.whole;
  }
  e.words.words[(int64_t(batch) * f.num_kv_heads + kv_head) * f.num_queries + token] =
      whole ? word : 1ull << kBrokenWord;
}

/// What a warp recomputes gradients from.
struct EarlyRows {
  const SelectedEarly& e;
  const IntervalAttention& f = e.problem.forward;
  int group = f.num_heads / f.num_kv_heads;

  __device__ uint64_t word(int64_t batch, int kv_head, int token) const {
    return e.words.words[(batch * f.num_kv_heads + kv_head) * f.num_queries + token];
  }
  __device__ Pair pair(int64_t batch, int token, int head, int key) const {
    const float2 stats =
        e.words.stats[(batch * e.words.tokens_of_batch + token) * f.num_heads + head];
    return Pair(f, Row(f.q, f.element, batch, token, head),
                Row(e.problem.d_out, f.element, batch, token, head),
                Row(f.k, f.element, batch, key, head / group),
                Row(f.v, f.element, batch, key, head / group), stats.x, stats.y);
  }
};

/// `row` counts rows of [B, first queries, Hq].
__device__ void mend_query(const SelectedEarly& e, int64_t row) {
  const EarlyRows rows{e};
  const IntervalAttention& f = rows.f;
  const int64_t batch = row / f.num_heads / f.num_queries;
  const int token = int(row / f.num_heads % f.num_queries), head = int(row % f.num_heads),
            kv_head = head / rows.group;
  const Row to(e.problem.d_q,
               ((batch * e.words.tokens_of_batch + token) * f.num_heads + head) * f.qk_head_dim,
               f.element);
  const uint64_t word = rows.word(batch, kv_head, token);
  if (word >> kBrokenWord || all_finite(to, f.qk_head_dim)) return;
  Columns sum;
  const int end = min(f.first_position + token + 1, f.num_keys);
  for (int key = 0; key < end && !sum.lost(f.qk_head_dim); ++key)
    if (word >> key / 64 & 1)
      sum.add(rows.pair(batch, token, head, key).ds, Row(f.k, f.element, batch, key, kv_head),
              f.qk_head_dim);
  sum.write(to, f.qk_head_dim);
}

/// Columns first, first + 1, ... of a key in the slot of its tile, a column every 32 a lane.
struct SlotRow {
  float* slot;
  int place, first;
  __device__ SlotRow(float* slot, int key, int first)
      : slot(slot), place(key % 64 / 16 * 32 + key % 8 * 4 + key % 16 / 8 * 256), first(first) {}
  __device__ float& at(int i) const {
    const int column = first + i * 32 + threadIdx.x % 32;
    return slot[place + (column / 8 * 4 + column % 2) * 128 + column % 8 / 2];
  }
  __device__ bool finite(int dim) const {
    bool all = true;
    for (int i = 0; i * 32 < dim; ++i) all &= isfinite(at(i));
    return __all_sync(~0u, all);
  }
  /// The sums, or zeros.
  __device__ void write(const Columns& sum, bool zero, int dim) const {
    for (int i = 0; i < kMaxColumns; ++i)
      if (i * 32 < dim) at(i) = zero ? 0.f : sum.sum[i];
  }
};

/// `row` counts rows of [B, Hkv, keys]. The recomputed sums are in the first chunk's slot.
__device__ void mend_key(const SelectedEarly& e, int64_t row) {
  const EarlyRows rows{e};
  const IntervalAttention& f = rows.f;
  const int key = int(row % f.num_keys), tile = key / 64, pair = key / kKeysOfTile * kKeysOfTile;
  const int64_t head_index = row / f.num_keys, heads = int64_t(f.batch) * f.num_kv_heads,
                batch = head_index / f.num_kv_heads;
  const int kv_head = int(head_index % f.num_kv_heads),
            chunks = chunks_of(f, pair, min(pair + kKeysOfTile, f.num_keys), e.plan.chunk_tokens);
  const auto slot_of = [&](int chunk) {
    return e.words.slots + ((chunk * heads + head_index) * e.words.key_tiles + tile) * 64 *
                               (f.qk_head_dim + f.v_head_dim);
  };
  bool finite = true;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    float* const slot = slot_of(chunk);
    finite &= SlotRow(slot, key, 0).finite(f.qk_head_dim) &&
              SlotRow(slot, key, f.qk_head_dim).finite(f.v_head_dim);
  }
  if (finite) return;
  Columns sum_k, sum_v;
  for (int token = max(0, key - f.first_position); token < f.num_queries; ++token) {
    const uint64_t word = rows.word(batch, kv_head, token);
    if (word >> kBrokenWord || !(word >> tile & 1)) continue;
    if (sum_k.lost(f.qk_head_dim) && sum_v.lost(f.v_head_dim)) break;
    for (int head = kv_head * rows.group; head < (kv_head + 1) * rows.group; ++head) {
      const Pair own = rows.pair(batch, token, head, key);
      sum_k.add(own.ds, Row(f.q, f.element, batch, token, head), f.qk_head_dim);
      sum_v.add(own.p, Row(e.problem.d_out, f.element, batch, token, head), f.v_head_dim);
    }
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    SlotRow(slot_of(chunk), key, 0).write(sum_k, chunk > 0, f.qk_head_dim);
    SlotRow(slot_of(chunk), key, f.qk_head_dim).write(sum_v, chunk > 0, f.v_head_dim);
  }
}

/// One warp a row of d_q, then a key.
__global__ void __launch_bounds__(kThreads)
    mend_early_kernel(const __grid_constant__ SelectedEarly e) {
  if (*e.plan.bad == 0) return;
  const IntervalAttention& f = e.problem.forward;
  const int64_t queries = int64_t(f.batch) * f.num_queries * f.num_heads,
                keys = int64_t(f.batch) * f.num_kv_heads * f.num_keys;
  const int64_t warps = int64_t(gridDim.x) * (kThreads / 32);
  for (int64_t row = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32; row < queries + keys;
       row += warps) {
    if (row < queries) {
      mend_query(e, row);
    } else {
      mend_key(e, row - queries);
    }
  }
}

}  // namespace

cudaError_t read_tile_words(const SelectedEarly& e, const int32_t* ranges, int num_ranges,
                            cudaStream_t stream) {
  const IntervalAttention& f = e.problem.forward;
  const int64_t rows = int64_t(f.batch) * f.num_queries * f.num_kv_heads;
  const auto blocks = static_cast<unsigned>((rows + kThreads - 1) / kThreads);
  return portable::launch(read_words_kernel, blocks, kThreads, 0, stream, e,
                          reinterpret_cast<const int2*>(ranges), num_ranges);
}

cudaError_t mend_early(const SelectedEarly& e, cudaStream_t stream) {
  return portable::launch(mend_early_kernel, kBusySms * 4, kThreads, 0, stream, e);
}

}  // namespace nsa::kernels::sm90
