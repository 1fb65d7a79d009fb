// Interval attention, forward: the choice of blocks.
//
// Once the lse of its rows is known, a CTA computes the logits again, tile by tile, and turns them
// into probabilities, their sums over the heads of a token and those into block scores; a warp
// keeps the best blocks of its tokens (block_selector.cuh). The product of the next tile runs while
// the blocks of this one are chosen; for that Q is in registers and its place holds the lists.
// Where two warpgroups compute and l, d, l' are 32, 16, 64, direct_selection.cuh stands for this.
#pragma once
#include <cute/arch/copy_sm75.hpp>

#include "nsa/kernels/common/sm90/online_softmax.cuh"
#include "nsa/kernels/interval/sm90/interval_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BN, typename T>
struct SelectionPass : IntervalTiles<DK, DV, BN, T, true> {
  static_assert(BN == kSelectKeys);
  using Base = IntervalTiles<DK, DV, BN, T, true>;
  using typename Base::Loads, typename Base::Rows, typename Base::Shared, typename Base::Tile;
  using typename Base::Scheduler;
  using MmaScores =
      decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<BN>, _64>>()));

  /// What a warp needs to know of its tokens.
  struct Warp {
    int tokens, first_token;  // of the tile
    float* sums;              // [tokens][kSelectKeys]
    BlockList* lists;
    ListState* states;
    int limit[2];  // keys from here on count nothing for a row
    float shift[2];
    int all_visible;  // below it, every key counts for every row
    int places;
  };
  CUTE_DEVICE static Warp warp_of(const IntervalArguments& a, Shared& s, const Tile& tile, int half,
                                  const Rows& rows, const float (&lse)[2]) {
    const BlockSelection& choice = a.selection;
    Warp w;
    w.tokens = a.by_row_group.quotient(16);
    w.first_token = a.by_row_group.quotient(half * 64 + threadIdx.x % 128 / 32 * 16);
    w.sums = Base::sums_of(a, s) + w.first_token * kSelectKeys;
    w.lists = Base::lists_of(a, s) + w.first_token;
    w.states = s.states + w.first_token;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      w.limit[r] = Base::row_of(a, rows.index[r]).used(a, tile) ? rows.keys[r].end : 0;
      w.shift[r] = -lse[r] * kLog2e;
    }
    const bool all_used = a.row_group == a.group_size && tile.count == a.tokens_per_tile;
    w.all_visible = all_used ? rows.inner.end : 0;
    w.places = choice.top_n - choice.num_initial - choice.num_local;
    return w;
  }

  /// Logits of a step -> probabilities, 0 where a key does not count.
  template <class Scores>
  CUTE_DEVICE static void to_probabilities(const IntervalArguments& a, const Warp& w, int step,
                                           Scores& scores) {
    constexpr int kCount = decltype(size(scores))::value;
    CUTE_UNROLL
    for (int i = 0; i < kCount; ++i)
      scores(i) = fast_exp2(fmaf(scores(i), a.scale_log2, w.shift[(i / 2) % 2]));
    if ((step + 1) * BN <= w.all_visible) return;
    CUTE_UNROLL
    for (int i = 0; i < kCount; ++i)
      if (step * BN + (i / 4) * 8 + (threadIdx.x % 4) * 2 + i % 2 >= w.limit[(i / 2) % 2])
        scores(i) = 0.f;
  }

  /// Offers the blocks of a step to the lists of the warp's tokens.
  template <int kGroup>
  CUTE_DEVICE static void choose(const IntervalArguments& a, const Warp& w, int step) {
    if (Base::kWarpgroups == 3 && a.strides == 4 && a.overlap == 1) {
      choose_of_four<kGroup>(a.selection, w, step);
    } else if (a.strides == 1 && a.overlap == 0) {
      choose_of_adjacent<kGroup>(a.selection, w, step);
    } else {
      choose_of_any<kGroup>(a, w, step);
    }
    __syncwarp();
  }

  /// Q of the warpgroup as A operand.
  CUTE_DEVICE static auto load_q_fragment(Shared& s, int half) {
    MmaScores mma;
    const int thread = threadIdx.x % 128;
    Tensor own_q = local_tile(make_tensor(make_smem_ptr(s.q), typename Base::LayoutQ{}),
                              Shape<_64, Int<DK>>{}, make_coord(half, 0));
    Tensor fragment = mma.get_thread_slice(thread).partition_fragment_A(own_q);
    auto copy_q = make_tiled_copy_A(Copy_Atom<SM75_U32x4_LDSM_N, T>{}, mma);
    auto copy_thread = copy_q.get_thread_slice(thread);
    copy(copy_q, copy_thread.partition_S(as_position_independent_swizzle_tensor(own_q)),
         copy_thread.retile_D(fragment));
    return fragment;
  }

  /// Enqueues the scores of a load of K once it is there.
  template <class Q, class Scores>
  CUTE_DEVICE static void start(Shared& s, uint32_t load, const Q& q, Scores& scores) {
    Base::wait(s.k_full[Base::stage_of(load)], Base::phase_of(load));
    MmaScores mma;
    Tensor b = mma.get_thread_slice(threadIdx.x % 128)
                   .partition_fragment_B(make_tensor(make_smem_ptr(s.k[Base::stage_of(load)]),
                                                     typename Base::LayoutK{}));
    warpgroup_fence_operand(scores);
    warpgroup_arrive();
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    CUTE_UNROLL
    for (int i = 0; i < size<2>(b); ++i) {
      gemm(mma, q(_, _, i), b(_, _, i), scores);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
  }
  template <class Scores>
  CUTE_DEVICE static void finish(Shared& s, uint32_t load, Scores& scores) {
    warpgroup_wait<0>();
    warpgroup_fence_operand(scores);
    if (threadIdx.x % 32 == 0) Base::arrive(s.k_empty[Base::stage_of(load)]);
  }

  /// After the output of the tile is stored. All computing warps call.
  CUTE_DEVICE static void run(const IntervalArguments& a, Shared& s, const Tile& tile, int half,
                              const Rows& rows, const float (&lse)[2], const Scheduler& scheduler,
                              Loads& loads) {
    auto q = load_q_fragment(s, half);
    warpgroup_fence_operand(q);
    // Every warp has its Q and has read V: the places become lists and sums.
    if (!a.apart) cutlass::arch::NamedBarrier::sync(Base::kConsumers, kPlacesFree);
    const Warp w = warp_of(a, s, tile, half, rows, lse);
    if (tile.select_steps > 0) {
      begin_lists(a, tile, w);
      choose_by_score(a, s, tile, w, q, scheduler, loads.k());
      loads.add_k(tile.select_steps);
    }
    write_lists(a, tile, w);
    if (a.apart && tile.select_steps > 0) return;
    cutlass::arch::fence_view_async_shared();  // loads into these places follow
    Base::release_q(s);
  }
  template <class Q>
  CUTE_DEVICE static void choose_by_score(const IntervalArguments& a, Shared& s, const Tile& tile,
                                          const Warp& w, const Q& q, const Scheduler& scheduler,
                                          uint32_t first_load) {
    switch (a.row_group) {
      case 1:
        return choose_of_groups<1>(a, s, tile, w, q, scheduler, first_load);
      case 2:
        return choose_of_groups<2>(a, s, tile, w, q, scheduler, first_load);
      case 4:
        return choose_of_groups<4>(a, s, tile, w, q, scheduler, first_load);
      case 8:
        return choose_of_groups<8>(a, s, tile, w, q, scheduler, first_load);
      default:
        return choose_of_groups<16>(a, s, tile, w, q, scheduler, first_load);
    }
  }
  /// The product of the next tile is enqueued as soon as its registers are free.
  template <int kGroup, class Q>
  CUTE_DEVICE static void choose_of_groups(const IntervalArguments& a, Shared& s, const Tile& tile,
                                           const Warp& w, const Q& q, const Scheduler& scheduler,
                                           uint32_t first_load) {
    auto scores = Base::scores_fragment();
    const int last = tile.select_steps - 1;
    const auto start_next = [&](int step) {
      scheduler.await();
      start(s, first_load + step, q, scores);
      scheduler.pass();
    };
    start_next(0);
    // Not before a product has taken Q: until then its loads from shared memory may be on the way.
    if (a.apart) Base::release_q(s);
    finish(s, first_load, scores);
    for (int step = 0; step < last; ++step) {
      to_probabilities(a, w, step, scores);
      RowSums<kGroup> sums;
      sums.take(scores);
      if constexpr (kGroup < 16) sums.store(w.sums);
      start_next(step + 1);
      if constexpr (kGroup == 16) sums.store(w.sums);
      __syncwarp();
      choose<kGroup>(a, w, step);
      finish(s, first_load + step + 1, scores);
    }
    to_probabilities(a, w, last, scores);
    RowSums<kGroup> sums;
    sums.take(scores);
    sums.store(w.sums);
    __syncwarp();
    choose<kGroup>(a, w, last);
  }
};

}  // namespace nsa::kernels::sm90
