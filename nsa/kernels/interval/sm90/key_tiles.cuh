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

  struct Shared {
    alignas(1024) T k[kKeys * DK];
    alignas(1024) T v[kKeys * DV];
    alignas(1024) T q[kStages][BM * DK];
    alignas(1024) T d_out[kStages][BM * DV];
    alignas(16) float lse[kStages][kWords ? 2 : 1][BM];
    alignas(16) float delta[kStages][BM];
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
        Copy::copy(a.plan.delta[from], s.delta[stage][i], exists);
      }
    }
  };
  struct WordStatistics {
    static constexpr int kOfLane = BM / 32;  // rows
    const uint64_t* words;
    const float2* stats;
    int first_tile;
    int token_of_row[kOfLane];
    uint32_t next[kOfLane];  // two bits: whether a row of the next tile attends each half

    CUTE_DEVICE WordStatistics(const BackwardArguments& a, const Work& work) {
      const int group = a.forward.num_heads / a.forward.num_kv_heads;
      words = a.words.words +
              (int64_t(work.batch) * a.forward.num_kv_heads + work.kv_head) * a.forward.num_queries;
      stats = a.words.stats + int64_t(work.batch) * a.words.tokens_of_batch * a.forward.num_heads +
              work.kv_head * group;
      first_tile = work.first_key / 64;
      CUTE_UNROLL
      for (int j = 0; j < kOfLane; ++j)
        token_of_row[j] = (threadIdx.x % 32 + 32 * j) / a.tiling.heads;
      fetch(a, work.end - a.tiling.tokens);
    }
    CUTE_DEVICE void fetch(const BackwardArguments& a, int first_token) {
      CUTE_UNROLL
      for (int j = 0; j < kOfLane; ++j) {
        const int token = first_token + token_of_row[j];
        const bool exists = token >= 0 && token < a.forward.num_queries;
        next[j] = exists ? uint32_t(words[token] >> first_tile) : 0;
      }
    }
    CUTE_DEVICE void copy(const BackwardArguments& a, Shared& s, int stage, int first_token,
                          int head) {
      using Copy = SM80_CP_ASYNC_CACHEALWAYS_ZFILL<float>;
      CUTE_UNROLL
      for (int j = 0; j < kOfLane; ++j) {
        const int row = threadIdx.x % 32 + 32 * j, token = first_token + token_of_row[j];
        if (row >= a.tiling.tokens * a.tiling.heads) break;
        const bool exists = token >= 0 && token < a.forward.num_queries;
        const float2& own = stats[int64_t(exists ? token : 0) * a.forward.num_heads + head +
                                  (row - token_of_row[j] * a.tiling.heads)];
        CUTE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const float* const lse = next[j] >> half & 1 ? &own.x : a.words.infinity;
          Copy::copy(*lse, s.lse[stage][half][row], true);
        }
        Copy::copy(own.y, s.delta[stage][row], exists);
      }
      if (head + a.tiling.heads == a.forward.num_heads / a.forward.num_kv_heads)
        fetch(a, first_token - a.tiling.tokens);
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
    int count = 0;
    for (int step = 0; step < work.steps; ++step)
      for (int part = 0; part < a.tiling.parts; ++part, ++count) {
        const int stage = count % kStages, token = work.end - (step + 1) * a.tiling.tokens,
                  head = part * a.tiling.heads;
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

  CUTE_DEVICE static void prepare(const BackwardArguments& a, Shared& s) {
    if (threadIdx.x == 0) {
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
          for (auto& lse : s.lse[stage]) lse[row] = INFINITY;
          s.delta[stage][row] = 0.f;
        }
      }
    cutlass::arch::fence_view_async_shared();
  }
};

}  // namespace nsa::kernels::sm90
