// d_q of interval attention on wgmma and TMA.
//
// A CTA computes 128 rows of one KV head, as the forward pass does: s = q k^T and dp = d_out v^T of
// a tile of keys, then d_q += ds k with ds in registers. The products of the next tile are enqueued
// behind the sum of this one. A last step of few keys computes few columns: the window of some
// tokens is seldom a multiple of a step. kWords: a row attends only the tiles of 64 keys that its
// token's word names; for the others its lse is infinite. A window may join: where it has keys of a
// step, ds of both branches are summed.
#pragma once
#include "nsa/kernels/interval/sm90/query_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BN, typename T, bool kWords = false>
struct QueryGradients : QueryTiles<DK, DV, BN, T, kWords> {
  using Tiles = QueryTiles<DK, DV, BN, T, kWords>;
  using Tiles::kRows, Tiles::kStages, Tiles::keys_of_token, Tiles::tile_of;
  using typename Tiles::KeyColumns, typename Tiles::Shared, typename Tiles::Tile,
      typename Tiles::Work;
  template <int kCount, int D>
  using ByRows = typename Tiles::template ByRows<kCount, D>;
  template <int kColumns>
  using MmaScores =
      decltype(make_tiled_mma(GMMA::ss_op_selector<T, T, float, Shape<_64, Int<kColumns>, _64>>()));
  static constexpr int kFew = 32;  // columns of a short last step
  static constexpr bool kEndsShort = DK + DV <= (kWords ? 128 : 256);  // else registers are spilled
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
    const int first_row = half * 64 + warp * 16 + lane / 4;
    Span keys[2];
    float2 own[2];  // lse and delta; with kWords all of it is in shared memory
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + 8 * r, own_token = a.by_heads.quotient(row),
                head = row - own_token * a.tiling.heads;
      const int token = tile.first + min(own_token, tile.count - 1);
      if constexpr (kWords) {
        if (lane % 4 == 0) Tiles::note_row(a, s.statistics[row], tile, token, tile.head + head);
        __syncwarp();
        continue;
      }
      keys[r] = keys_of_token(a, token);
      const int64_t from =
          ((int64_t(tile.batch) * f.num_kv_heads + tile.kv_head) * f.num_queries + token) *
              (f.num_heads / f.num_kv_heads) +
          tile.head + head;
      own[r] = {a.plan.lse[from], a.plan.delta[from]};
    }
    const int inner_begin = kWords ? 0 : keys_of_token(a, tile.first + tile.count - 1).begin,
              inner_end = keys_of_token(a, tile.first).end;  // keys that every row attends
    // The window begins for the first row; keys from `within` on are in that of every row.
    const int window_begin = f.first_position + tile.first - a.words.window + 1,
              within = window_begin + tile.count - 1;
    const auto statistics_of = [&](int first, int r, bool in_window) {
      if constexpr (kWords) return s.statistics[first_row + 8 * r].of(first, in_window);
      return own[r];
    };
    const auto keys_of_row = [&](int r) {
      if constexpr (kWords) return Span{0, s.statistics[first_row + 8 * r].end};
      return keys[r];
    };

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
    // Calls each(i, statistics of columns i and i + 1, whether these are attended) for the elements
    // of a step. `edge`: the window begins within it.
    const auto for_pairs = [&](int first, auto& x, auto masked, auto edge, const auto& each) {
      CUTE_UNROLL
      for (int j = 0; j < x.columns / 32; ++j) {
        const int begin = first + 32 * j;
        CUTE_UNROLL
        for (int r = 0; r < 2; ++r) {
          const Span keys = keys_of_row(r);
          const int window_begin = keys.end - a.words.window;
          const float2 inner = statistics_of(begin, r, kWords && begin + 32 > window_begin);
          float2 outer{};
          uint32_t near = 0, attended = 0;
          if constexpr (decltype(edge)::value) {
            outer = statistics_of(begin, r, false);
            near = ~columns_before(window_begin - begin);
          }
          if constexpr (decltype(masked)::value)
            attended = columns_before(keys.end - begin) & ~columns_before(keys.begin - begin);
          CUTE_UNROLL
          for (int k = 0; k < 8; k += 2) {
            float2 low = inner, high = inner;
            if constexpr (decltype(edge)::value) {
              low = near >> k & 1 ? inner : outer;
              high = near >> (k + 1) & 1 ? inner : outer;
            }
            bool on[2] = {true, true};
            if constexpr (decltype(masked)::value)
              on[0] = attended >> k & 1, on[1] = attended >> (k + 1) & 1;
            each(16 * j + 2 * k + 2 * r, low, high, on);
          }
        }
      }
    };
    const auto probabilities = [&](int first, auto& x, auto edge) {
      for_pairs(first, x, std::false_type{}, edge,
                [&](int i, float2 low, float2 high, const bool (&)[2]) {
                  x.p(i) = power_of_two(fmaf(x.p(i), a.scale_log2, -low.x));
                  x.p(i + 1) = power_of_two(fmaf(x.p(i + 1), a.scale_log2, -high.x));
                });
    };
    const auto differentiate = [&](int first, auto& x, auto masked, auto edge) {
      for_pairs(first, x, masked, edge, [&](int i, float2 low, float2 high, const bool (&on)[2]) {
        const float a = on[0] ? x.p(i) * (x.ds(i) - low.y) : 0.f,
                    b = on[1] ? x.p(i + 1) * (x.ds(i + 1) - high.y) : 0.f;
        x.packed(i / 2) = pack<T>(a, b);
      });
    };
    const auto give_back = [&](int step) {
      if (lane != 0) return;
      arrive(s.v_empty[(count + step) % kStages]);
      if (step + 1 == tile.steps) arrive(s.rows_empty);
    };

    // ds of a step whose two products are on the way.
    const auto form = [&](int step, auto& x) __attribute__((always_inline)) {
      const int first = tile.begin + step * BN;
      const bool edge = kWords && a.words.window > 0 && first < within && first + BN > window_begin;
      warpgroup_wait<1>();
      warpgroup_fence_operand(x.p);
      if (kWords && edge) {
        probabilities(first, x, std::true_type{});
      } else {
        probabilities(first, x, std::false_type{});
      }
      warpgroup_wait<0>();
      warpgroup_fence_operand(x.ds);
      give_back(step);
      if (kWords && edge) {
        differentiate(first, x, std::false_type{}, std::true_type{});
      } else if (x.columns == BN && first >= inner_begin && first + BN <= inner_end) {
        differentiate(first, x, std::false_type{}, std::false_type{});
      } else {
        differentiate(first, x, std::true_type{}, std::false_type{});
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
