// d_q of interval attention on wgmma and TMA.
//
// A CTA computes 128 rows of one KV head, as the forward pass does: s = q k^T and dp = d_out v^T of
// a tile of keys, then d_q += ds k with ds in registers. The products of the next tile are enqueued
// behind the sum of this one. A last step of few keys computes few columns: the window of some
// tokens is seldom a multiple of a step. kWords: a row attends only the tiles of 64 keys that its
// token's word names; for the others its lse is infinite.
#pragma once
#include "nsa/kernels/interval/sm90/backward_parts.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BN, typename T, bool kWords = false>
struct QueryGradients {
  static constexpr int kRows = 128, kThreads = 384, kStages = 2;
  template <int kCount, int D>
  using ByRows =
      decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<kCount>, Int<D>>{}));
  using KeyColumns = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{},
                                            Shape<Int<DK>, Int<BN>>{}, Step<_2, _1>{}));
  template <int kColumns>
  using MmaScores =
      decltype(make_tiled_mma(GMMA::ss_op_selector<T, T, float, Shape<_64, Int<kColumns>, _64>>()));
  static constexpr int kFew = 32;                     // columns of a short last step
  static constexpr bool kEndsShort = DK + DV <= 256;  // else registers are spilled
  /// Registers of a step.
  template <int kColumns>
  struct OfStep {
    static constexpr Int<kColumns> columns{};
    decltype(partition_fragment_C(MmaScores<kColumns>{}, Shape<_64, Int<kColumns>>{})) p, ds;
    decltype(packed_accumulator<kColumns>()) packed;  // A operand
  };
  using MmaSum =
      decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<DK>, Int<BN>>,
                                                   GMMA::Major::K, GMMA::Major::MN>()));

  struct Shared {
    alignas(1024) T q[kRows * DK];
    alignas(1024) T d_out[kRows * DV];
    alignas(1024) T k[kStages][BN * DK];
    alignas(1024) T v[kStages][BN * DV];
    alignas(16) T staging[8][16 * 64];  // of each computing warp, for its output
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
    return (a.forward.num_queries + a.tiling.tokens - 1) / a.tiling.tokens * a.tiling.parts;
  }
  CUTE_DEVICE static Tile tile_of(const BackwardArguments& a, const Work& work, int i) {
    const int index = tiles_of(a) - 1 - work.first - i;  // the last tiles attend the most keys
    Tile tile;
    tile.kv_head = work.sequence % a.forward.num_kv_heads;
    tile.batch = work.sequence / a.forward.num_kv_heads;
    const int tokens = a.by_parts.quotient(index);
    tile.first = tokens * a.tiling.tokens;
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

  /// One warpgroup: 64 rows of every tile.
  CUTE_DEVICE static void consume(const BackwardArguments& a, Shared& s, const Work& work,
                                  int half) {
    int count = 0;
    for (int i = 0; i < work.count; ++i) {
      count += consume_tile(a, s, work, i, half, count);
    }
  }

  /// The i-th tile, whose first step is the `count`-th of the CTA; returns its steps.
  CUTE_DEVICE static int consume_tile(const BackwardArguments& a, Shared& s, const Work& work,
                                      int i, int half, int count) {
    const Tile tile = tile_of(a, work, i);
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const IntervalAttention& f = a.forward;
    MmaScores<BN> mma_scores;
    MmaSum mma_sum;
    auto scores_thread = mma_scores.get_thread_slice(thread);
    auto sum_thread = mma_sum.get_thread_slice(thread);
    Tensor all_q = make_tensor(make_smem_ptr(s.q), ByRows<kRows, DK>{});
    Tensor all_d_out = make_tensor(make_smem_ptr(s.d_out), ByRows<kRows, DV>{});
    Tensor frag_q = scores_thread.partition_fragment_A(
        local_tile(all_q, Shape<_64, Int<DK>>{}, make_coord(half, 0)));
    Tensor frag_d_out = scores_thread.partition_fragment_A(
        local_tile(all_d_out, Shape<_64, Int<DV>>{}, make_coord(half, 0)));
    OfStep<BN> full;
    OfStep<kFew> few;
    Tensor d_q = partition_fragment_C(mma_sum, Shape<_64, Int<DK>>{});
    clear(d_q);

    // The two rows of this thread.
    const int group = f.num_heads / f.num_kv_heads;
    Span keys[2];
    float lse[2], delta[2];
    uint64_t words[2];
    for (int r = 0; r < 2; ++r) {
      const int row = half * 64 + warp * 16 + lane / 4 + 8 * r;
      const int own_token = a.by_heads.quotient(row), head = row - own_token * a.tiling.heads;
      const int token = tile.first + min(own_token, tile.count - 1);
      keys[r] = keys_of_token(a, token);
      if constexpr (kWords) {
        words[r] =
            a.words.words[(int64_t(tile.batch) * f.num_kv_heads + tile.kv_head) * f.num_queries +
                          token];
        const float2 own =
            a.words.stats[(int64_t(tile.batch) * a.words.tokens_of_batch + token) * f.num_heads +
                          tile.kv_head * group + tile.head + head];
        const bool broken = words[r] >> kBrokenWord;
        words[r] = broken ? ~0ull : words[r];
        lse[r] = broken ? NAN : own.x;
        delta[r] = own.y;
        continue;
      }
      const int64_t from =
          ((int64_t(tile.batch) * f.num_kv_heads + tile.kv_head) * f.num_queries + token) * group +
          tile.head + head;
      lse[r] = a.plan.lse[from];
      delta[r] = a.plan.delta[from];
    }
    const int inner_begin = kWords ? 0 : keys_of_token(a, tile.first + tile.count - 1).begin,
              inner_end = keys_of_token(a, tile.first).end;  // keys that every row attends

    // x = rows times the first of the tile of keys or values at `keys`.
    const auto multiply_keys = [&](const auto& rows, T* keys, auto layout, auto columns, auto& x) {
      MmaScores<columns> mma;
      constexpr int kDepth = decltype(size<1>(layout))::value;
      Tensor tile = local_tile(make_tensor(make_smem_ptr(keys), layout),
                               Shape<decltype(columns), Int<kDepth>>{}, make_coord(0, 0));
      multiply<true>(mma, rows, mma.get_thread_slice(thread).partition_fragment_B(tile), x);
    };
    const auto multiply_q_k = [&](int step, auto& x) {
      const int stage = (count + step) % kStages;
      wait(s.k_full[stage], ((count + step) / kStages) & 1);
      multiply_keys(frag_q, s.k[stage], ByRows<BN, DK>{}, x.columns, x.p);
    };
    const auto multiply_d_out_v = [&](int step, auto& x) {
      const int stage = (count + step) % kStages;
      wait(s.v_full[stage], ((count + step) / kStages) & 1);
      multiply_keys(frag_d_out, s.v[stage], ByRows<BN, DV>{}, x.columns, x.ds);
    };
    const auto differentiate = [&](int first, auto& x, auto masked) {
      uint32_t attended[2];
      if constexpr (decltype(masked)::value)
        for (int r = 0; r < 2; ++r)
          attended[r] =
              columns_before(keys[r].end - first) & ~columns_before(keys[r].begin - first);
      CUTE_UNROLL
      for (int i = 0; i < x.columns / 2; i += 2) {
        const int r = (i / 2) % 2;
        float low = x.p(i) * (x.ds(i) - delta[r]), high = x.p(i + 1) * (x.ds(i + 1) - delta[r]);
        if constexpr (decltype(masked)::value) {
          low = attended[r] >> (i / 4 * 2) & 1 ? low : 0.f;
          high = attended[r] >> (i / 4 * 2 + 1) & 1 ? high : 0.f;
        }
        x.packed(i / 2) = pack<T>(low, high);
      }
    };

    // ds of a step whose two products are on the way.
    const auto form = [&](int step, auto& x) {
      const int first = tile.begin + step * BN;
      warpgroup_wait<1>();
      warpgroup_fence_operand(x.p);
      if constexpr (kWords) {
        CUTE_UNROLL
        for (int j = 0; j < x.columns / 32; ++j) {
          float shift[2];
          CUTE_UNROLL
          for (int r = 0; r < 2; ++r)
            shift[r] = words[r] >> ((first + 32 * j) / 64 % 64) & 1 ? lse[r] : INFINITY;
          CUTE_UNROLL
          for (int i = 16 * j; i < 16 * (j + 1); ++i)
            x.p(i) = power_of_two(fmaf(x.p(i), a.scale_log2, -shift[(i / 2) % 2]));
        }
      } else {
        CUTE_UNROLL
        for (int i = 0; i < x.columns / 2; ++i)
          x.p(i) = power_of_two(fmaf(x.p(i), a.scale_log2, -lse[(i / 2) % 2]));
      }
      warpgroup_wait<0>();
      warpgroup_fence_operand(x.ds);
      if (lane == 0) {
        arrive(s.v_empty[(count + step) % kStages]);
        if (step + 1 == tile.steps) arrive(s.rows_empty);
      }
      if (x.columns == BN && first >= inner_begin && first + BN <= inner_end) {
        differentiate(first, x, std::false_type{});
      } else {
        differentiate(first, x, std::true_type{});
      }
    };
    const auto sum = [&](int step, auto& x) {
      Tensor keys =
          local_tile(make_tensor(make_smem_ptr(s.k[(count + step) % kStages]), KeyColumns{}),
                     Shape<Int<DK>, std::remove_const_t<decltype(x.columns)>>{}, make_coord(0, 0));
      warpgroup_fence_operand(x.packed);
      multiply<false>(mma_sum, recast<T>(x.packed), sum_thread.partition_fragment_B(keys), d_q);
    };

    wait(s.rows_full, i & 1);
    if (tile.steps > 0) {
      const bool ends_short =
          kEndsShort && tile.steps > 1 && tile.end - tile.begin <= (tile.steps - 1) * BN + kFew;
      const int whole = tile.steps - ends_short;
      multiply_q_k(0, full);
      multiply_d_out_v(0, full);
      form(0, full);
      for (int step = 1; step < whole; ++step) {
        sum(step - 1, full);
        multiply_q_k(step, full);
        warpgroup_wait<1>();
        warpgroup_fence_operand(d_q);
        if (lane == 0) arrive(s.k_empty[(count + step - 1) % kStages]);
        multiply_d_out_v(step, full);
        form(step, full);
      }
      bool summed = false;
      if constexpr (kEndsShort) {
        if (ends_short) {
          sum(whole - 1, full);
          multiply_q_k(whole, few);
          warpgroup_wait<1>();
          warpgroup_fence_operand(d_q);
          if (lane == 0) arrive(s.k_empty[(count + whole - 1) % kStages]);
          multiply_d_out_v(whole, few);
          form(whole, few);
          sum(whole, few);
          summed = true;
        }
      }
      if (!summed) sum(whole - 1, full);
      warpgroup_wait<0>();
      warpgroup_fence_operand(d_q);
      if (lane == 0) arrive(s.k_empty[(count + tile.steps - 1) % kStages]);
    } else {
      __syncwarp();  // all lanes have seen the rows that are given back
      if (lane == 0) arrive(s.rows_empty);
    }

    store(a, s, work, i, half, d_q);
    return tile.steps;
  }

  /// Computes the tile again: kept across the loop it would cost registers.
  template <class Acc>
  CUTE_DEVICE static void store(const BackwardArguments& a, Shared& s, const Work& work, int i,
                                int half, const Acc& d_q) {
    asm volatile("" : "+r"(i));
    const Tile tile = tile_of(a, work, i);
    const IntervalAttention& f = a.forward;
    const int warp = threadIdx.x % 128 / 32;
    const auto target = [&](int row_of_warp) -> T* {
      const int row = half * 64 + warp * 16 + row_of_warp, token = a.by_heads.quotient(row);
      if (token >= tile.count) return nullptr;
      const int tokens_of_batch = kWords ? a.words.tokens_of_batch : f.num_queries;
      const int64_t place =
          (int64_t(tile.batch) * tokens_of_batch + tile.first + token) * f.num_heads +
          tile.kv_head * (f.num_heads / f.num_kv_heads) + tile.head + row - token * a.tiling.heads;
      return static_cast<T*>(a.d_q) + place * DK;
    };
    if (!store_rows<DK, !kWords>(s.staging[half * 4 + warp], f.scale, d_q, target, a.adds))
      *a.plan.bad = 1;
  }
};

}  // namespace nsa::kernels::sm90
