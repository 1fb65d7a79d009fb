// d_k and d_v of interval attention: the rows of a CTA, its shared memory and its loads.
#pragma once
#include "nsa/kernels/interval/sm90/backward_parts.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BM, int kStages, typename T, bool kWords = false>
struct KeyTiles {
  static constexpr int kKeys = kKeysOfTile, kThreads = 384;
  static constexpr int kProducerRegisters = kWords && DK == 64 ? 40 : 24,
                       kConsumerRegisters = kWords && DK == 64 ? 232 : 240;
  using LayoutK =
      decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<kKeys>, Int<DK>>{}));
  using LayoutV =
      decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<kKeys>, Int<DV>>{}));
  // A tile of rows, read by rows for s and dp and by columns for the sums over rows.
  template <int D>
  using Rows = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<BM>, Int<D>>{}));
  template <int D>
  using Columns = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{}, Shape<Int<D>, Int<BM>>{},
                                         Step<_2, _1>{}));

  static constexpr int kParts = kWords ? 2 : 1;  // statistics of each warpgroup's keys, or of all
  static constexpr int kEdge = kWords ? BM : 4;  // rows of a tile that may lie on the edge
  /// A warpgroup's first key, the CTA's last token's successor and its tiles of rows.
  struct Own {
    int key, end, total;
  };
  struct Shared {
    alignas(1024) T k[kKeys * DK];
    alignas(1024) T v[kKeys * DV];
    alignas(1024) T q[kStages][BM * DK];
    alignas(1024) T d_out[kStages][BM * DV];
    alignas(16) float lse[kStages][kParts][BM], delta[kStages][kParts][BM];
    // Of keys before the window, where a tile lies on its edge.
    alignas(16) float outer_lse[kStages][kParts][kEdge], outer_delta[kStages][kParts][kEdge];
    Own own[kWords ? 2 : 1];
    alignas(8) uint64_t keys_full, full[kStages], empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;

  /// What a CTA does: the rows of tokens [end - steps * tokens of a tile, end) for its keys.
  struct Work {
    int batch, kv_head, chunk, first_key, end, steps;
  };
  /// Chunk slowest, key tile fastest: tiles that read the same rows run together.
  CUTE_DEVICE static Work work_of(const BackwardArguments& a, int unit) {
    const int tiles = (a.forward.num_keys + kKeys - 1) / kKeys,
              heads = a.forward.batch * a.forward.num_kv_heads;
    Work work;
    int rest = unit;
    work.first_key = rest % tiles * kKeys;
    rest /= tiles;
    work.kv_head = rest % heads % a.forward.num_kv_heads;
    work.batch = rest % heads / a.forward.num_kv_heads;
    work.chunk = rest / heads;
    const Span span =
        queries_of(a.forward, work.first_key, min(work.first_key + kKeys, a.forward.num_keys));
    work.end = span.end - work.chunk * a.plan.chunk_tokens;
    const int begin = max(span.begin, work.end - a.plan.chunk_tokens);
    work.steps = max(0, (work.end - begin + a.tiling.tokens - 1) / a.tiling.tokens);
    return work;
  }

  /// Whether the window that joins begins for a token of a tile of rows within 64 keys: not at the
  /// first one.
  CUTE_DEVICE static bool on_edge(const BackwardArguments& a, int key, int position) {
    const int first = position - a.words.window + 1, last = first + a.tiling.tokens - 1;
    return kWords && a.words.window > 0 && last > key && first < key + 64;
  }

  /// lse and delta of the rows of a tile, by one warp.
  struct IntervalStatistics {
    int64_t all_rows, base;
    int group;

    CUTE_DEVICE IntervalStatistics(const BackwardArguments& a, const Work& work)
        : group(a.forward.num_heads / a.forward.num_kv_heads) {
      all_rows = int64_t(a.forward.num_queries) * group;
      base = (int64_t(work.batch) * a.forward.num_kv_heads + work.kv_head) * all_rows;
    }
    CUTE_DEVICE void copy(const BackwardArguments& a, Shared& s, int stage, int token, int head) {
      using Copy = SM80_CP_ASYNC_CACHEALWAYS_ZFILL<float>;
      for (int i = threadIdx.x % 32; i < a.tiling.tokens * a.tiling.heads; i += 32) {
        const int64_t row = int64_t(token) * group + head + i;
        const bool exists = row >= 0 && row < all_rows;
        const int64_t from = base + (exists ? row : 0);
        Copy::copy(a.plan.lse[from], s.lse[stage][0][i], exists);
        Copy::copy(a.plan.delta[from], s.delta[stage][0][i], exists);
      }
    }
  };
  struct WordStatistics {
    static constexpr int kOfLane = BM / 32;  // rows
    const Work& work;
    uint32_t next;  // two bits a row of the next tile: whether it attends each half

    CUTE_DEVICE WordStatistics(const BackwardArguments& a, const Work& work) : work(work) {
      fetch(a, work.end - a.tiling.tokens);
    }
    CUTE_DEVICE static int group_of(const BackwardArguments& a) {
      return a.tiling.heads * a.tiling.parts;
    }
    CUTE_DEVICE static int row_of_lane(int j) { return threadIdx.x % 32 + 32 * j; }
    CUTE_DEVICE void fetch(const BackwardArguments& a, int first_token) {
      const int head = work.batch * a.forward.num_kv_heads + work.kv_head;
      const uint64_t* const words = a.words.words + int64_t(head) * a.forward.num_queries;
      CUTE_UNROLL
      for (int j = 0; j < kOfLane; ++j) {
        const int token = first_token + a.by_heads.quotient(row_of_lane(j));
        const bool exists = token >= 0 && token < a.forward.num_queries;
        const auto halves = uint32_t(exists ? words[token] >> work.first_key / 64 : 0) & 3;
        next = (j == 0 ? 0 : next) | halves << 2 * j;
      }
    }
    CUTE_DEVICE void copy(const BackwardArguments& a, Shared& s, int stage, int first_token,
                          int first_head) {
      int kv_head = work.kv_head, batch = work.batch;
      // What is computed of them is not kept across the loop: a loading warp has few registers.
      asm volatile("" : "+r"(kv_head), "+r"(batch));
      CUTE_UNROLL
      for (int j = 0; j < kOfLane; ++j) {
        const int row = row_of_lane(j), of_tile = a.by_heads.quotient(row),
                  token = first_token + of_tile;
        if (row >= a.tiling.tokens * a.tiling.heads) break;
        // Rows of a call fit 32 bits.
        const int from = (batch * a.words.tokens_of_batch + token) * a.forward.num_heads +
                         kv_head * group_of(a) + first_head + row - of_tile * a.tiling.heads,
                  begin = a.forward.first_position + token - a.words.window + 1;
        const bool exists = token >= 0 && token < a.forward.num_queries;
        CUTE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int key = work.first_key + half * 64;
          const bool selected = next >> (2 * j + half) & 1,
                     in_window = exists && a.words.window > 0 && begin < key + 64;
          copy_row(statistics_of(a.words, selected, in_window, from), s.lse[stage][half][row],
                   s.delta[stage][half][row]);
          if (on_edge(a, key, a.forward.first_position + first_token))
            copy_row(statistics_of(a.words, selected, false, from), s.outer_lse[stage][half][row],
                     s.outer_delta[stage][half][row]);
        }
      }
      if (first_head + a.tiling.heads == group_of(a)) fetch(a, first_token - a.tiling.tokens);
    }
    /// Of a row for a key: of the branches that attend it.
    CUTE_DEVICE static const float2* statistics_of(const TileWords& words, bool selected,
                                                   bool in_window, int row) {
      if (selected) return (in_window ? words.of_both : words.stats) + row;
      return in_window ? words.of_window + row : words.nothing;
    }
    CUTE_DEVICE static void copy_row(const float2* from, float& lse, float& delta) {
      using Copy = SM80_CP_ASYNC_CACHEALWAYS_ZFILL<float>;
      Copy::copy(from->x, lse, true);
      Copy::copy(from->y, delta, true);
    }
  };
  using Statistics = std::conditional_t<kWords, WordStatistics, IntervalStatistics>;

  /// One warp: the keys, then the tiles of rows as places become free.
  CUTE_DEVICE static void produce(const BackwardArguments& a, Shared& s, const Work& work) {
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const int lane = threadIdx.x % 32;
    const uint64_t once = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST),
                   keep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_NORMAL);
    if (lane == 0) {
      Full::arrive_and_expect_tx(&s.keys_full, kKeys * (DK + DV) * sizeof(T));
      for (int c = 0; c < DK; c += 64)
        SM90_TMA_LOAD_4D::copy(&a.k_map, &s.keys_full, once, s.k + c * kKeys, c, work.kv_head,
                               work.first_key, work.batch);
      for (int c = 0; c < DV; c += 64)
        SM90_TMA_LOAD_4D::copy(&a.v_map, &s.keys_full, once, s.v + c * kKeys, c, work.kv_head,
                               work.first_key, work.batch);
    }
    const int group = a.forward.num_heads / a.forward.num_kv_heads,
              rows = a.tiling.tokens * a.tiling.heads;
    Statistics statistics(a, work);
    for (int count = 0; count < tiles_of(a, s, work); ++count) {
      const int step = a.by_parts.quotient(count), stage = count % kStages,
                token = work.end - (step + 1) * a.tiling.tokens,
                head = (count - step * a.tiling.parts) * a.tiling.heads;
      wait(s.empty[stage], (count / kStages + 1) & 1);
      if (lane == 0) {
        Full::arrive_and_expect_tx(&s.full[stage], rows * (DK + DV) * sizeof(T));
        for (int c = 0; c < DK; c += 64)
          SM90_TMA_LOAD_4D::copy(&a.q_map, &s.full[stage], keep, s.q[stage] + c * BM, c,
                                 work.kv_head * group + head, token, work.batch);
        for (int c = 0; c < DV; c += 64)
          SM90_TMA_LOAD_4D::copy(&a.d_out_map, &s.full[stage], keep, s.d_out[stage] + c * BM, c,
                                 work.kv_head * group + head, token, work.batch);
      }
      statistics.copy(a, s, stage, token, head);
      cutlass::arch::cpasync_barrier_arrive_noinc(&s.full[stage]);
    }
  }

  /// Tiles of rows that pass. With words registers are scarce: it lies in shared memory.
  CUTE_DEVICE static int tiles_of(const BackwardArguments& a, const Shared& s, const Work& work) {
    if (!kWords) return work.steps * a.tiling.parts;
    return const_cast<const volatile int&>(s.own[0].total);
  }

  CUTE_DEVICE static void prepare(const BackwardArguments& a, Shared& s) {
    if (threadIdx.x == 0) {
      if (kWords) {
        const Work work = work_of(a, blockIdx.x);
        for (int half = 0; half < 2; ++half)
          s.own[half] = {work.first_key + half * 64, work.end, work.steps * a.tiling.parts};
      }
      using Barrier = cutlass::arch::ClusterBarrier;
      Barrier::init(&s.keys_full, 1);
      for (uint64_t& barrier : s.full)
        Barrier::init(&barrier, 33);  // TMA, and the copies of a warp
      for (uint64_t& barrier : s.empty)
        Barrier::init(&barrier, 256);  // every computing thread: each has read rows' lse and delta
      cutlass::arch::fence_barrier_init();
    }
    clear_unused(a, s);
  }

  /// Rows of a tile beyond its tokens and heads: never loaded, probability 0.
  CUTE_DEVICE static void clear_unused(const BackwardArguments& a, Shared& s) {
    const int rows = a.tiling.tokens * a.tiling.heads;
    for (int stage = 0; stage < kStages; ++stage)
      for (int row = rows; row < BM; ++row) {
        for (int i = threadIdx.x; i < DK; i += kThreads)
          s.q[stage][i / 64 * (BM * 64) + row * 64 + i % 64] = T(0.f);
        for (int i = threadIdx.x; i < DV; i += kThreads)
          s.d_out[stage][i / 64 * (BM * 64) + row * 64 + i % 64] = T(0.f);
        if (threadIdx.x == 0) {
          for (int part = 0; part < kParts; ++part) {
            s.lse[stage][part][row] = INFINITY, s.delta[stage][part][row] = 0.f;
            if (kWords)
              s.outer_lse[stage][part][row] = INFINITY, s.outer_delta[stage][part][row] = 0.f;
          }
        }
      }
    cutlass::arch::fence_view_async_shared();
  }
};

}  // namespace nsa::kernels::sm90
