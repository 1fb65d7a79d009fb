// Interval attention, forward: the choice of blocks for l, d, l' = 32, 16, 64, where two warpgroups
// compute.
//
// As selection_pass.cuh, but block scores and the bound of what may be chosen stay in registers
// (block_candidates.cuh).
#pragma once
#include "nsa/kernels/interval/sm90/block_candidates.cuh"
#include "nsa/kernels/interval/sm90/selection_pass.cuh"

namespace nsa::kernels::sm90 {

/// Where the ids of a token go, and where it stands.
struct TokenRow {
  int64_t row;            // among all (batch, query, KV head)
  int position, current;  // its block
  int free;  // this lane's: the block lane - num_initial chosen by score; not read where
             // every block is chosen
  bool exists;
};

/// Writes the ids of tokens, ascending, and their ranges.
template <int kTokens>
__device__ __forceinline__ void write_blocks_of(const BlockSelection& s,
                                                const TokenRow (&tokens)[kTokens]) {
  const int lane = lane_anew(), n = s.top_n;
  int id[kTokens];
#pragma unroll
  for (int u = 0; u < kTokens; ++u) {
    const int current = tokens[u].current;
    id[u] = -1;
    if (current + 1 <= n)
      id[u] = lane <= current ? lane : -1;
    else if (lane < s.num_initial)
      id[u] = lane;
    else if (lane < n - s.num_local)
      id[u] = tokens[u].free;
    else if (lane < n)
      id[u] = current - (n - 1 - lane);
    if (tokens[u].exists && lane < n) s.block_idx[tokens[u].row * n + lane] = id[u];
  }
  if (s.ranges == nullptr) return;
  const unsigned before = (1u << lane) - 1;
#pragma unroll
  for (int u = 0; u < kTokens; ++u) {
    const int previous = __shfl_up_sync(~0u, id[u], 1), next = __shfl_down_sync(~0u, id[u], 1);
    const bool starts = id[u] >= 0 && (lane == 0 || previous != id[u] - 1);
    const bool ends = id[u] >= 0 && (lane >= n - 1 || next != int(id[u] + 1u));
    const unsigned start_lanes = __ballot_sync(~0u, starts), end_lanes = __ballot_sync(~0u, ends);
    if (!tokens[u].exists) continue;
    int32_t* const ranges = s.ranges + tokens[u].row * n * 2;
    if (starts) ranges[2 * __popc(start_lanes & before)] = id[u] * s.sel_block_size;
    if (ends)
      ranges[2 * __popc(end_lanes & before) + 1] =
          min((id[u] + 1) * s.sel_block_size, tokens[u].position + 1);
    if (lane < n && lane >= __popc(start_lanes))
      *reinterpret_cast<int2*>(ranges + 2 * lane) = make_int2(0, 0);
  }
}

template <int DK, int DV, int BN, typename T>
struct DirectSelection : SelectionPass<DK, DV, BN, T> {
  using Pass = SelectionPass<DK, DV, BN, T>;
  using Base = IntervalTiles<DK, DV, BN, T, true>;
  using typename Base::Loads, typename Base::Rows, typename Base::Shared, typename Base::Tile;
  using typename Base::Scheduler, typename Pass::Warp;

  /// After the output of the tile is stored. All computing warps call.
  CUTE_DEVICE static void run(const IntervalArguments& a, Shared& s, const Tile& tile, int half,
                              const Rows& rows, const float (&lse)[2], const Scheduler& scheduler,
                              Loads& loads) {
    if (a.strides != 4 || a.overlap != 1)
      return Pass::run(a, s, tile, half, rows, lse, scheduler, loads);
    auto q = Pass::load_q_fragment(s, half);
    warpgroup_fence_operand(q);
    // Every warp has its Q and has read V: the places become lists.
    if (!a.apart) cutlass::arch::NamedBarrier::sync(Base::kConsumers, kPlacesFree);
    const Warp w = Pass::warp_of(a, s, tile, half, rows, lse);
    if (tile.select_steps > 0) {
      choose(a, s, tile, w, q, scheduler, loads);
      loads.add_k(Base::tile_again(a, loads.q()).select_steps);
      if (a.apart) return;
    } else {
      write_lists(a, tile, w);
    }
    cutlass::arch::fence_view_async_shared();  // loads into these places follow
    Base::release_q(s);
  }

 private:
  /// The last block that a token may choose by score; -1 where all are chosen or there is no token.
  CUTE_DEVICE static int last_free_of(const IntervalArguments& a, const Tile& tile, int token) {
    const int current = a.by_sel_block.quotient(tile.shift + tile.first + token);
    const bool chooses = token < tile.count && current + 1 > a.selection.top_n;
    return chooses ? current - a.selection.num_local : -1;
  }
  /// The warp's first token of the tile, found anew.
  CUTE_DEVICE static int first_token_of(const IntervalArguments& a) {
    return a.by_row_group.quotient((thread_anew() - 128) / 32 * 16);
  }
  CUTE_DEVICE static char* places_of(const IntervalArguments& a, Shared& s) {
    return reinterpret_cast<char*>(Base::lists_of(a, s)) + first_token_of(a) * kCandidatePlaces;
  }
  /// Where a token of the tile stands; `free`: see TokenRow.
  CUTE_DEVICE static TokenRow row_of_token(const IntervalArguments& a, const Tile& tile, int token,
                                           int free) {
    const int position = tile.shift + tile.first + token;
    const int64_t row =
        (int64_t(tile.batch) * a.num_queries + tile.first + token) * a.by_kv_heads.value +
        tile.kv_head;
    return {row, position, a.by_sel_block.quotient(position), free, token < tile.count};
  }
  /// Scores and candidates of a warp.
  template <int kGroup>
  struct Chooser {
    using Candidates = BlockCandidates<kGroup>;
    static constexpr int kTogether = Candidates::kTokens < 2 ? 1 : 2;
    BlockScores<kGroup> scores;
    Candidates candidates;
    float of_step[Candidates::kBlocks];

    CUTE_DEVICE Chooser(const IntervalArguments& a, Shared& s, const Tile& tile)
        : candidates(places_of(a, s), a.selection,
                     last_free_of(a, tile, first_token_of(a) + BlockLanes<kGroup>{}.token())) {}
    CUTE_DEVICE void take(RowSums<kGroup>& sums) { scores.add(sums, of_step); }
    CUTE_DEVICE void offer(int step, bool ends) { candidates.offer(step, ends, of_step); }
    CUTE_DEVICE void write(const IntervalArguments& a, const Tile& tile) {
      const int place = lane_anew() - a.selection.num_initial, token = first_token_of(a);
      candidates.end();
      CUTE_NO_UNROLL
      for (int first = 0; first < Candidates::kTokens && token + first < tile.count;
           first += kTogether) {
        int blocks[kTogether];
        candidates.template best_blocks<kTogether>(first, blocks);
        TokenRow rows[kTogether];
        CUTE_UNROLL
        for (int u = 0; u < kTogether; ++u)
          rows[u] = row_of_token(a, tile, token + first + u,
                                 __shfl_sync(~0u, blocks[u], place < 0 ? 0 : place));
        write_blocks_of<kTogether>(a.selection, rows);
      }
    }
  };

  template <class Q>
  CUTE_DEVICE static void choose(const IntervalArguments& a, Shared& s, const Tile& tile,
                                 const Warp& w, const Q& q, const Scheduler& scheduler,
                                 const Loads& loads) {
    switch (a.row_group) {
      case 1:
        return choose_of_groups<1>(a, s, tile, w, q, scheduler, loads);
      case 2:
        return choose_of_groups<2>(a, s, tile, w, q, scheduler, loads);
      case 4:
        return choose_of_groups<4>(a, s, tile, w, q, scheduler, loads);
      case 8:
        return choose_of_groups<8>(a, s, tile, w, q, scheduler, loads);
      default:
        return choose_of_groups<16>(a, s, tile, w, q, scheduler, loads);
    }
  }
  /// The product of the next tile is enqueued as soon as its registers are free.
  template <int kGroup, class Q>
  CUTE_DEVICE static void choose_of_groups(const IntervalArguments& a, Shared& s, const Tile& tile,
                                           const Warp& w, const Q& q, const Scheduler& scheduler,
                                           const Loads& loads) {
    auto scores = Base::scores_fragment();
    Chooser<kGroup> chooser(a, s, tile);
    const int last = tile.select_steps - 1;
    const auto start_next = [&](int step) {
      scheduler.await();
      Pass::start(s, loads.k() + step, q, scores);
      scheduler.pass();
    };
    start_next(0);
    // Not before a product has taken Q: until then its loads from shared memory may be on the way.
    if (a.apart) Base::release_q(s);
    Pass::finish(s, loads.k(), scores);
    for (int step = 0; step < last; ++step) {
      Pass::to_probabilities(a, w, step, scores);
      RowSums<kGroup> sums;
      sums.take(scores);
      if constexpr (kGroup < 16) {
        add_rows(sums);
        chooser.take(sums);
      }
      start_next(step + 1);
      if constexpr (kGroup == 16) {
        add_rows(sums);
        chooser.take(sums);
      }
      chooser.offer(step, false);
      Pass::finish(s, loads.k() + step + 1, scores);
    }
    Pass::to_probabilities(a, w, last, scores);
    RowSums<kGroup> sums;
    sums.take(scores);
    add_rows(sums);
    chooser.take(sums);
    chooser.offer(last, true);
    chooser.write(a, Base::tile_again(a, loads.q()));
  }
};

}  // namespace nsa::kernels::sm90
