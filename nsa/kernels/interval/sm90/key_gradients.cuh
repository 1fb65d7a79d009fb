// d_k and d_v of interval attention on wgmma and TMA.
//
// A CTA sums the gradients of 128 keys of one KV head over a run of rows; a row is a (token, head
// of the group) pair, so the whole group is summed on chip. Two warpgroups own 64 keys each and
// compute with rows as columns: s^T = k q^T and dp^T = v d_out^T, then d_v += p^T d_out and d_k +=
// ds^T q with p and ds in registers. A third one feeds tiles of rows by TMA.
//
// kWords: a row attends only the tiles of 64 keys that its token's word names. Of the others its
// lse is infinite, one for each warpgroup, so that the products need no other mask. Where a window
// joins, a row of a tile has the statistics of the branches that attend it together; only on the
// edge of the window two of them, by the key.
//
// Rows come from the last to the first, so that the tiles of a chunk are the same for every key
// tile of the compressed branch and are found in L2.
#pragma once
#include "nsa/kernels/interval/sm90/key_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BM, int kStages, typename T, bool kWords = false>
struct KeyGradients : KeyTiles<DK, DV, BM, kStages, T, kWords> {
  using Tiles = KeyTiles<DK, DV, BM, kStages, T, kWords>;
  using Tiles::work_of;
  using typename Tiles::LayoutK, typename Tiles::LayoutV, typename Tiles::Shared,
      typename Tiles::Work;
  template <int D>
  using Rows = typename Tiles::template Rows<D>;
  template <int D>
  using Columns = typename Tiles::template Columns<D>;
  using MmaScores =
      decltype(make_tiled_mma(GMMA::ss_op_selector<T, T, float, Shape<_64, Int<BM>, _64>>()));
  template <int D>
  using MmaSum =
      decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<D>, Int<BM>>,
                                                   GMMA::Major::K, GMMA::Major::MN>()));

  /// Registers for s and dp at once, and for d_v on the way while ds is computed; without them
  /// wgmma is serialised.
  static constexpr bool kRoomy = DK + DV <= 256;

  /// Which pairs of this thread are attended: of key r, bit i those of its i-th column.
  struct Bits {
    uint32_t of_key[2];
    /// Of an element of the accumulator.
    CUTE_DEVICE bool operator[](int i) const {
      return of_key[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1;
    }
  };
  /// The rule; whole tiles under words have none, which the compiler then knows.
  CUTE_DEVICE static IntervalRule rule_of(const BackwardArguments& a) {
    return kWords ? IntervalRule{} : a.forward.rule;
  }
  /// The position of the first query that is not left out.
  CUTE_DEVICE static int first_computed(const BackwardArguments& a) {
    return kWords ? 0 : a.forward.first_position + a.forward.first_query;
  }
  CUTE_DEVICE static Bits attended(const BackwardArguments& a, int key, int position) {
    const IntervalRule rule = rule_of(a);
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    const auto before = [&](int token) {
      return columns_before(min(max(token - position, 0), BM) * a.tiling.heads);
    };
    Bits bits;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int own = key + warp * 16 + lane / 4 + 8 * r;
      bits.of_key[r] = ~before(max(first_position_of(rule, own), first_computed(a)));
      if (!kWords) bits.of_key[r] &= before(last_position_of(rule, own) + 1);
    }
    return bits;
  }

  /// Tiles of rows a warpgroup has to do with, and those whose pairs are all attended; both are
  /// runs of the CTA's tiles.
  struct Reach {
    int first_any, first_all, last_any, last_all;  // positions
    CUTE_DEVICE Reach(const BackwardArguments& a, int key) {
      const IntervalRule rule = rule_of(a);
      first_any = max(first_computed(a), first_position_of(rule, key));
      first_all = max(first_computed(a), first_position_of(rule, key + 63));
      last_any = kWords ? INT_MAX : last_position_of(rule, key + 63);
      last_all = kWords ? INT_MAX : last_position_of(rule, key);
    }
    CUTE_DEVICE bool any(int position, int tokens) const {
      return position + tokens > first_any && position <= last_any;
    }
    CUTE_DEVICE bool all(int position, int tokens) const {
      return position >= first_all && position + tokens - 1 <= last_all;
    }
  };

  /// One warpgroup: 64 keys.
  CUTE_DEVICE static void consume(const BackwardArguments& a, Shared& s, const Work& work,
                                  int half) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    MmaScores mma_scores;
    MmaSum<DK> mma_d_k;
    MmaSum<DV> mma_d_v;
    auto scores_thread = mma_scores.get_thread_slice(thread);
    auto d_k_thread = mma_d_k.get_thread_slice(thread);
    auto d_v_thread = mma_d_v.get_thread_slice(thread);
    Tensor all_k = make_tensor(make_smem_ptr(s.k), LayoutK{});
    Tensor all_v = make_tensor(make_smem_ptr(s.v), LayoutV{});
    Tensor frag_k = scores_thread.partition_fragment_A(
        local_tile(all_k, Shape<_64, Int<DK>>{}, make_coord(half, 0)));
    Tensor frag_v = scores_thread.partition_fragment_A(
        local_tile(all_v, Shape<_64, Int<DV>>{}, make_coord(half, 0)));
    Tensor x = partition_fragment_C(mma_scores, Shape<_64, Int<BM>>{});  // s, then dp
    Tensor y = partition_fragment_C(mma_scores, Shape<_64, Int<BM>>{});  // dp, when kRoomy
    Tensor d_k = partition_fragment_C(mma_d_k, Shape<_64, Int<DK>>{});
    Tensor d_v = partition_fragment_C(mma_d_v, Shape<_64, Int<DV>>{});
    Tensor p = packed_accumulator<BM>(), ds = packed_accumulator<BM>();  // A operands
    clear(d_k);
    clear(d_v);
    // With words registers are scarce: what the CTA is lies in shared memory.
    const auto own = [&]()->volatile typename Tiles::Own& {
      return s.own[kRoomy ? half : int(threadIdx.x) / 128 - 1];
    };
    const auto own_key_of = [&] { return kWords ? own().key : work.first_key + half * 64; };
    const auto end_of = [&] { return kWords ? own().end : work.end; };
    const auto total_of = [&] { return Tiles::tiles_of(a, s, work); };
    const auto reach_of = [&] { return Reach(a, own_key_of()); };

    const auto position_of = [&](int count) {
      return a.forward.first_position + end_of() -
             (a.by_parts.quotient(count) + 1) * a.tiling.tokens;
    };
    const auto multiply_scores = [&](int count) {
      const int stage = count % kStages;
      Tensor q = make_tensor(make_smem_ptr(s.q[stage]), Rows<DK>{});
      wait(s.full[stage], (count / kStages) & 1);
      multiply<true>(mma_scores, frag_k, scores_thread.partition_fragment_B(q), x);
    };
    const auto multiply_d_probabilities = [&](int count, auto& to) {
      Tensor d_out = make_tensor(make_smem_ptr(s.d_out[count % kStages]), Rows<DV>{});
      multiply<true>(mma_scores, frag_v, scores_thread.partition_fragment_B(d_out), to);
    };
    const auto part_of = [&] { return kWords ? half : 0; };  // of the statistics
    // Statistics of the columns of elements i and i + 1, whose first token is at `position`. On the
    // edge of the window the key decides.
    const auto statistic = [&](const float* inner, const float* outer, int i, int position,
                               auto edge) {
      if constexpr (decltype(edge)::value) {
        const int place = threadIdx.x;
        const int column = place % 4 * 2 + i / 4 * 8,
                  key = own_key_of() + place % 128 / 32 * 16 + place % 32 / 4 + i / 2 % 2 * 8;
        const auto of = [&](int c) {
          const int begin = position + a.by_heads.quotient(c) - a.words.window + 1;
          return (key < begin ? outer : inner)[c];
        };
        return float2{of(column), of(column + 1)};
      }
      return *reinterpret_cast<const float2*>(inner + lane % 4 * 2 + i / 4 * 8);
    };
    const auto probabilities = [&](int stage, const Bits& bits, int position, auto masked,
                                   auto edge) {
      CUTE_UNROLL
      for (int i = 0; i < BM / 2; i += 2) {
        const float2 shift =
            statistic(s.lse[stage][part_of()], s.outer_lse[stage][part_of()], i, position, edge);
        float low = power_of_two(fmaf(x(i), a.scale_log2, -shift.x)),
              high = power_of_two(fmaf(x(i + 1), a.scale_log2, -shift.y));
        if constexpr (decltype(masked)::value) {
          low = bits[i] ? low : 0.f;
          high = bits[i + 1] ? high : 0.f;
        }
        p(i / 2) = pack<T>(low, high);
      }
    };
    // Where p is 0, so is ds, or it is not finite and then computed once more.
    const auto differentiate = [&](int stage, const auto& dp, int position, auto edge) {
      CUTE_UNROLL
      for (int i = 0; i < BM / 2; i += 2) {
        const float2 shift = statistic(s.delta[stage][part_of()], s.outer_delta[stage][part_of()],
                                       i, position, edge);
        const float2 probability = unpack<T>(p(i / 2));
        ds(i / 2) =
            pack<T>(probability.x * (dp(i) - shift.x), probability.y * (dp(i + 1) - shift.y));
      }
    };

    // Tiles [begin, end) are this warpgroup's; it only releases the others.
    const auto skip = [&](int count) {
      wait(s.full[count % kStages], (count / kStages) & 1);
      arrive(s.empty[count % kStages]);
    };
    int count = 0;
    while (count < total_of() && !reach_of().any(position_of(count), a.tiling.tokens))
      skip(count++);
    wait(s.keys_full, 0);
    // ds of a tile whose s is in registers, d_v on the way. kRoomy: dp has been enqueued behind s.
    const auto form = [&](int count) {
      const int stage = count % kStages;
      Tensor d_out_columns = make_tensor(make_smem_ptr(s.d_out[stage]), Columns<DV>{});
      const int position = position_of(count);
      warpgroup_fence_operand(x);
      if (Tiles::on_edge(a, own_key_of(), position)) {
        probabilities(stage, {}, position, std::false_type{}, std::true_type{});
      } else if (reach_of().all(position, a.tiling.tokens)) {
        probabilities(stage, {}, position, std::false_type{}, std::false_type{});
      } else {
        probabilities(stage, attended(a, own_key_of(), position), position, std::true_type{},
                      std::false_type{});
      }
      warpgroup_fence_operand(p);
      if constexpr (!kRoomy) multiply_d_probabilities(count, x);
      multiply<false>(mma_d_v, recast<T>(p), d_v_thread.partition_fragment_B(d_out_columns), d_v);
      warpgroup_wait<kRoomy ? 1 : 0>();
      const auto differentiate_all = [&](auto& dp) {
        warpgroup_fence_operand(dp);
        int again = count;
        if (kWords) asm volatile("" : "+r"(again));  // nothing of the above is kept for it
        if (Tiles::on_edge(a, own_key_of(), position_of(again))) {
          differentiate(again % kStages, dp, position_of(again), std::true_type{});
        } else {
          differentiate(again % kStages, dp, 0, std::false_type{});
        }
      };
      if constexpr (kRoomy) {
        differentiate_all(y);
      } else {
        differentiate_all(x);
      }
      warpgroup_wait<0>();
      warpgroup_fence_operand(d_v);
    };
    const auto sum_d_k = [&](int stage) {
      Tensor q_columns = make_tensor(make_smem_ptr(s.q[stage]), Columns<DK>{});
      warpgroup_fence_operand(ds);
      multiply<false>(mma_d_k, recast<T>(ds), d_k_thread.partition_fragment_B(q_columns), d_k);
    };
    const auto await_scores = [&](int count) {
      if constexpr (kRoomy) multiply_d_probabilities(count, y);
      warpgroup_wait<kRoomy ? 1 : 0>();
    };
    if (count < total_of()) {
      multiply_scores(count);
      await_scores(count);
      while (true) {
        form(count);
        ++count;
        if (!(count < total_of() && reach_of().any(position_of(count), a.tiling.tokens))) break;
        const int before = (count - 1) % kStages;
        sum_d_k(before);
        multiply_scores(count);
        warpgroup_wait<1>();
        warpgroup_fence_operand(d_k);
        arrive(s.empty[before]);
        await_scores(count);
      }
      sum_d_k((count - 1) % kStages);
      warpgroup_wait<0>();
      warpgroup_fence_operand(d_k);
      arrive(s.empty[(count - 1) % kStages]);
    }
    while (count < total_of()) skip(count++);
    store(a, s, work, half, d_k, d_v);
  }

  template <class DKey, class DValue>
  CUTE_DEVICE static void store_slot(const BackwardArguments& a, int half, const DKey& d_k,
                                     const DValue& d_v) {
    int unit = blockIdx.x, thread = threadIdx.x;
    // Computed again: kept across the loop they would cost registers.
    asm volatile("" : "+r"(unit), "+r"(thread));
    const Work work = work_of(a, unit);
    if (work.steps == 0) return;  // the slot is not read
    const int64_t heads = int64_t(a.forward.batch) * a.forward.num_kv_heads,
                  head_of_chunk =
                      work.chunk * heads + work.batch * a.forward.num_kv_heads + work.kv_head,
                  slot = head_of_chunk * a.words.key_tiles + work.first_key / 64 + half;
    float* const to = a.words.slots + slot * (64 * (DK + DV)) + thread % 128;
    bool finite = true;
    CUTE_UNROLL
    for (int i = 0; i < DK / 2; ++i) {
      to[i * 128] = d_k(i) * a.forward.scale;
      finite &= isfinite(d_k(i));
    }
    CUTE_UNROLL
    for (int i = 0; i < DV / 2; ++i) {
      to[(DK / 2 + i) * 128] = d_v(i);
      finite &= isfinite(d_v(i));
    }
    if (!finite) *a.plan.bad = 1;
  }

  template <class DKey, class DValue>
  CUTE_DEVICE static void store(const BackwardArguments& a, Shared& s, const Work& work, int half,
                                DKey& d_k, DValue& d_v) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const IntervalAttention& f = a.forward;
    const int base = half * 64 + warp * 16;
    if constexpr (kWords) {
      store_slot(a, half, d_k, d_v);
      return;
    }
    if (a.plan.num_chunks > 1) {
      const int64_t heads = int64_t(f.batch) * f.num_kv_heads,
                    head = (work.chunk * heads + work.batch * f.num_kv_heads + work.kv_head);
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const int key = work.first_key + base + lane / 4 + 8 * r;
        if (key >= f.num_keys || work.steps == 0) continue;  // a unit without rows is not read
        float* const to = a.plan.partials + (head * f.num_keys + key) * (DK + DV) + (lane % 4) * 2;
        CUTE_UNROLL
        for (int i = 2 * r; i < DK / 2; i += 4)
          *reinterpret_cast<float2*>(to + (i / 4) * 8) =
              make_float2(d_k(i) * f.scale, d_k(i + 1) * f.scale);
        CUTE_UNROLL
        for (int i = 2 * r; i < DV / 2; i += 4)
          *reinterpret_cast<float2*>(to + DK + (i / 4) * 8) = make_float2(d_v(i), d_v(i + 1));
      }
      return;
    }
    cutlass::arch::NamedBarrier::sync(128, 1 + half);  // the warpgroup has read its keys
    const auto target = [&](void* to, int dim) {
      return [=, &a](int row) -> T* {
        const int key = work.first_key + base + row;
        if (key >= a.forward.num_keys) return nullptr;
        return static_cast<T*>(to) +
               ((int64_t(work.batch) * a.forward.num_keys + key) * a.forward.num_kv_heads +
                work.kv_head) *
                   dim;
      };
    };
    T* const staging = s.k + base * 64;  // own rows of the first columns of K
    bool good = store_rows<DK>(staging, f.scale, d_k, target(a.d_k, DK));
    good &= store_rows<DV>(staging, 1.f, d_v, target(a.d_v, DV));
    if (!good) *a.plan.bad = 1;
  }
};

}  // namespace nsa::kernels::sm90
