// What precedes and follows the whole tiles of the selected branch's backward pass.
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/interval/backward_chunks.h"
#include "nsa/kernels/interval/sm90/pair_gradients.cuh"
#include "nsa/kernels/interval/sm90/range_tiles.cuh"
#include "nsa/kernels/selected/sm90/selected_early_launch.h"

namespace nsa::kernels::sm90 {
namespace {

constexpr int kThreads = 256;

/// Statistics (lse in base 2, delta) with which a key that both branches attend has the sum of both
/// probabilities, and of both ds.
__device__ float2 both_of(float2 a, float2 b) {
  if (b.x == INFINITY) return a;
  if (a.x == INFINITY) return b;
  const float ratio = exp2f(a.x - b.x), own = 1.f / (1.f + ratio);  // of a, infinite ratio: 0
  const float lse = fminf(a.x, b.x) - log2f(1.f + exp2f(-fabsf(a.x - b.x)));
  return {isnan(a.x) || isnan(b.x) ? NAN : lse, own * a.y + (1.f - own) * b.y};
}
/// Of the rows of a token and a KV head.
__device__ void join_rows(const SelectedEarly& e, int batch, int token, int kv_head) {
  const IntervalAttention& f = e.problem.forward;
  const int group = f.num_heads / f.num_kv_heads, tokens = e.words.tokens_of_batch;
  const int64_t row = (int64_t(batch) * tokens + token) * f.num_heads + kv_head * group,
                of_window = ((int64_t(batch) * f.num_kv_heads + kv_head) * tokens + token) * group;
  for (int i = 0; i < group; ++i) {
    const float2 window{e.words.window_lse[of_window + i], e.words.window_delta[of_window + i]};
    e.words.of_window[row + i] = window;
    e.words.of_both[row + i] = both_of(e.words.stats[row + i], window);
  }
}

/// A thread a row of [B, first queries, Hkv].
__global__ void __launch_bounds__(kThreads)
    read_words_kernel(const __grid_constant__ SelectedEarly e, const int2* ranges, int num_ranges) {
  const IntervalAttention& f = e.problem.forward;
  const int index = blockIdx.x * kThreads + threadIdx.x;
  if (index == 0) {
    *e.plan.bad = 0;
    *e.words.nothing = {INFINITY, 0.f};
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
  if (e.words.window > 0) join_rows(e, batch, token, kv_head);
}

/// What a warp recomputes gradients from.
struct EarlyRows {
  const SelectedEarly& e;
  const IntervalAttention& f = e.problem.forward;
  int group = f.num_heads / f.num_kv_heads;

  __device__ uint64_t word(int64_t batch, int kv_head, int token) const {
    return e.words.words[(batch * f.num_kv_heads + kv_head) * f.num_queries + token];
  }
  __device__ bool selects(uint64_t word, int key) const {
    return !(word >> kBrokenWord) && (word >> key / 64 & 1);
  }
  /// Of the branch that joins; the key is not behind the token.
  __device__ bool in_window(int token, int key) const {
    return key > f.first_position + token - e.words.window;
  }
  __device__ bool attends(uint64_t word, int token, int key) const {
    return selects(word, key) || in_window(token, key);
  }
  /// Of both branches, those that attend the key.
  __device__ Pair pair(uint64_t word, int64_t batch, int token, int head, int key) const {
    const auto of = [&](float lse, float delta) {
      return Pair(f, Row(f.q, f.element, batch, token, head),
                  Row(e.problem.d_out, f.element, batch, token, head),
                  Row(f.k, f.element, batch, key, head / group),
                  Row(f.v, f.element, batch, key, head / group), lse, delta);
    };
    Pair sum;
    if (selects(word, key)) {
      const float2 stats =
          e.words.stats[(batch * e.words.tokens_of_batch + token) * f.num_heads + head];
      sum = of(stats.x, stats.y);
    }
    if (!in_window(token, key)) return sum;
    const float2 own =
        e.words.of_window[(batch * e.words.tokens_of_batch + token) * f.num_heads + head];
    const Pair more = of(own.x, own.y);
    sum.p += more.p, sum.ds += more.ds;
    return sum;
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
    if (rows.attends(word, token, key))
      sum.add(rows.pair(word, batch, token, head, key).ds, Row(f.k, f.element, batch, key, kv_head),
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
    if (!rows.attends(word, token, key)) continue;
    if (sum_k.lost(f.qk_head_dim) && sum_v.lost(f.v_head_dim)) break;
    for (int head = kv_head * rows.group; head < (kv_head + 1) * rows.group; ++head) {
      const Pair own = rows.pair(word, batch, token, head, key);
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
