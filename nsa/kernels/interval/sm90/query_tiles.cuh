// d_q of interval attention: the rows of a CTA, its shared memory and its loads.
#pragma once
#include "nsa/kernels/interval/sm90/backward_parts.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BN, typename T, bool kWords = false>
struct QueryTiles {
  static constexpr int kRows = 128, kThreads = 384, kStages = 2;
  template <int kCount, int D>
  using ByRows =
      decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<kCount>, Int<D>>{}));
  using KeyColumns = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{},
                                            Shape<Int<DK>, Int<BN>>{}, Step<_2, _1>{}));

  /// What a row of kWords is computed with and registers do not hold: lse in base 2 and delta for
  /// keys of neither branch, of the selected one, of the window and of both; its word and the end
  /// of its keys.
  struct RowStatistics {
    float2 of_branches[4];
    uint64_t word;
    int end;

    /// Of a key of the tile of 64 around `first`, which is in the window or not.
    CUTE_DEVICE float2 of(int first, bool in_window) const {
      return of_branches[(word >> (first / 64 % 64) & 1) + 2 * in_window];
    }
  };
  struct Shared {
    alignas(1024) T q[kRows * DK];
    alignas(1024) T d_out[kRows * DV];
    alignas(1024) T k[kStages][BN * DK];
    alignas(1024) T v[kStages][BN * DV];
    alignas(16) T staging[8][16 * 64];  // of each computing warp, for its output
    RowStatistics statistics[kWords ? kRows : 1];
    alignas(8) uint64_t rows_full,
        rows_empty, k_full[kStages], v_full[kStages], k_empty[kStages], v_empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;

  /// A tile of rows: heads [head, head + heads) of tokens [first, first + count), and the keys any
  /// of them attends.
  struct Tile {
    int batch, kv_head, first, count, head, begin, end, steps;
  };
  /// The tiles of a CTA, one after the other: what the next one needs is loaded while one ends.
  struct Work {
    int sequence, first, count;
  };
  CUTE_DEVICE static Work work_of(const BackwardArguments& a, int unit) {
    const int tiles = tiles_of(a), units = (tiles + a.tiles_of_unit - 1) / a.tiles_of_unit;
    const int first = unit % units * a.tiles_of_unit;
    return {unit / units, first, min(a.tiles_of_unit, tiles - first)};
  }
  /// Of one KV head of one sequence.
  CUTE_HOST_DEVICE static int tiles_of(const BackwardArguments& a) {
    const int queries = a.forward.num_queries - a.forward.first_query;
    return (queries + a.tiling.tokens - 1) / a.tiling.tokens * a.tiling.parts;
  }
  CUTE_DEVICE static Tile tile_of(const BackwardArguments& a, const Work& work, int i) {
    const int index = tiles_of(a) - 1 - work.first - i;  // the last tiles attend the most keys
    Tile tile;
    tile.kv_head = work.sequence % a.forward.num_kv_heads;
    tile.batch = work.sequence / a.forward.num_kv_heads;
    const int tokens = a.by_parts.quotient(index);
    tile.first = a.forward.first_query + tokens * a.tiling.tokens;
    tile.head = (index - tokens * a.tiling.parts) * a.tiling.heads;
    tile.count = min(a.tiling.tokens, a.forward.num_queries - tile.first);
    const Span first = keys_of_token(a, tile.first),
               last = keys_of_token(a, tile.first + tile.count - 1);
    tile.begin = kWords ? 0 : first.begin;
    tile.end = last.end;
    tile.steps = max(0, (tile.end - tile.begin + BN - 1) / BN);
    return tile;
  }
  CUTE_DEVICE static Span keys_of_token(const BackwardArguments& a, int token) {
    return keys_of(a.forward.rule, a.forward.first_position + token, a.forward.num_keys,
                   a.by_stride);
  }

  CUTE_DEVICE static void note_row(const BackwardArguments& a, RowStatistics& to, const Tile& tile,
                                   int token, int head) {
    const IntervalAttention& f = a.forward;
    const int group = f.num_heads / f.num_kv_heads;
    const int64_t kv_head = int64_t(tile.batch) * f.num_kv_heads + tile.kv_head,
                  row = (int64_t(tile.batch) * a.words.tokens_of_batch + token) * f.num_heads +
                        tile.kv_head * group + head;
    to.word = a.words.words[kv_head * f.num_queries + token];
    to.end = keys_of_token(a, token).end;
    const bool broken = to.word >> kBrokenWord, joins = a.words.window > 0;
    to.of_branches[0] = {INFINITY, 0.f};
    to.of_branches[1] = a.words.stats[row];
    to.of_branches[2] = joins ? a.words.of_window[row] : to.of_branches[0];
    to.of_branches[3] = joins ? a.words.of_both[row] : to.of_branches[1];
    if (broken) to.word = ~0ull, to.of_branches[1].x = to.of_branches[3].x = NAN;
  }

  CUTE_DEVICE static void prepare(const BackwardArguments&, Shared& s) {
    if (threadIdx.x != 0) return;
    using Barrier = cutlass::arch::ClusterBarrier;
    Barrier::init(&s.rows_full, 1);
    Barrier::init(&s.rows_empty, 8);
    for (int i = 0; i < kStages; ++i) {
      Barrier::init(&s.k_full[i], 1);
      Barrier::init(&s.v_full[i], 1);
      Barrier::init(&s.k_empty[i], 8);  // a lane of each computing warp
      Barrier::init(&s.v_empty[i], 8);
    }
    cutlass::arch::fence_barrier_init();
  }

  /// One warp, of which one thread works: K and V of the first step, rows, K and V of the others as
  /// places become free.
  CUTE_DEVICE static void produce(const BackwardArguments& a, Shared& s, const Work& work) {
    if (threadIdx.x != 0) return;
    int count = 0;  // of K (of V) loaded so far
    for (int i = 0; i < work.count; ++i) {
      const Tile tile = tile_of(a, work, i);
      if (tile.steps > 0) load_keys(a, s, tile, count, tile.begin);
      wait(s.rows_empty, (i + 1) & 1);
      load_rows(a, s, tile);
      for (int step = 1; step < tile.steps; ++step)
        load_keys(a, s, tile, count + step, tile.begin + step * BN);
      count += tile.steps;
    }
  }
  CUTE_DEVICE static void load_rows(const BackwardArguments& a, Shared& s, const Tile& tile) {
    const uint64_t once = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST);
    const int head = tile.kv_head * (a.forward.num_heads / a.forward.num_kv_heads) + tile.head;
    cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(
        &s.rows_full, a.tiling.tokens * a.tiling.heads * (DK + DV) * sizeof(T));
    for (int c = 0; c < DK; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.q_map, &s.rows_full, once, s.q + c * kRows, c, head, tile.first,
                             tile.batch);
    for (int c = 0; c < DV; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.d_out_map, &s.rows_full, once, s.d_out + c * kRows, c, head,
                             tile.first, tile.batch);
  }
  CUTE_DEVICE static void load_keys(const BackwardArguments& a, Shared& s, const Tile& tile,
                                    int count, int key) {
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const uint64_t keep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);
    const int stage = count % kStages, free = (count / kStages + 1) & 1;
    wait(s.k_empty[stage], free);
    Full::arrive_and_expect_tx(&s.k_full[stage], BN * DK * sizeof(T));
    for (int c = 0; c < DK; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.k_map, &s.k_full[stage], keep, s.k[stage] + c * BN, c, tile.kv_head,
                             key, tile.batch);
    wait(s.v_empty[stage], free);
    Full::arrive_and_expect_tx(&s.v_full[stage], BN * DV * sizeof(T));
    for (int c = 0; c < DV; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.v_map, &s.v_full[stage], keep, s.v[stage] + c * BN, c, tile.kv_head,
                             key, tile.batch);
  }
};

}  // namespace nsa::kernels::sm90
