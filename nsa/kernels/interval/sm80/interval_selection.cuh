// Interval attention, forward: the choice of blocks.
//
// Once the lse of its rows is known, a CTA computes the logits again, two tiles of keys a step, and
// turns them into probabilities, their sums over the heads of a token and those into block scores;
// a warp keeps the best blocks of its tokens (block_selector.cuh).
#pragma once
#include "nsa/kernels/interval/block_selector.cuh"
#include "nsa/kernels/interval/sm80/interval_tiles.cuh"

namespace nsa::kernels::sm80 {

/// What a warp needs to know of its tokens.
template <class List, class State>
struct TokenLists {
  int tokens, first_token;  // of the tile; where several warps have a token, the first one's
  float* sums;              // [tokens][kSelectKeys]; where several warps have one, each its own
  List* lists;
  State* states;
  int places;  // blocks to choose by score
};

template <int DK, typename T>
struct IntervalSelection {
  static_assert(kSelectKeys == 2 * kTileKeys);
  static constexpr int kKeyBytes = kTileKeys * DK * 2;
  template <class List, class State>
  static constexpr int kBytesWith = sizeof(List) + sizeof(State) + kSelectKeys * sizeof(float);
  /// Of lists and sums of a tile's tokens; each warp has sums.
  static int shared_bytes(const BlockSelection& s, int overlap, int tokens) {
    const int of_token = is_wide(s, overlap) ? kBytesWith<WideBlockList, WideListState>
                                             : kBytesWith<BlockList, ListState>;
    return (tokens < 4 ? 4 : tokens) * of_token;
  }
  __host__ __device__ static bool is_wide(const BlockSelection& s, int overlap) {
    return s.top_n > BlockList::kPlaces || overlap > 3;
  }

  /// All threads call when K's places and `lists` are free. q: as A operand.
  __device__ __forceinline__ static void run(const IntervalArguments& a,
                                             const uint32_t (&q)[DK / 16][4], const float (&lse)[2],
                                             uint32_t keys, char* lists) {
    if (is_wide(a.selection, a.overlap))
      run_with(a, q, lse, keys, lists_of_warp<WideBlockList, WideListState>(a, lists));
    else
      run_with(a, q, lse, keys, lists_of_warp<BlockList, ListState>(a, lists));
  }

  template <class Lists>
  __device__ __forceinline__ static void run_with(const IntervalArguments& a,
                                                  const uint32_t (&q)[DK / 16][4],
                                                  const float (&lse)[2], uint32_t keys,
                                                  const Lists& w) {
    const int steps = IntervalTile::again(a).select_steps;
    if (steps > 0) {
      begin_lists(a, IntervalTile::again(a), w);
      choose_by_score(a, steps, q, lse, keys, w);
    }
    write_lists(a, IntervalTile::again(a), w);
  }

  template <class List, class State>
  __device__ static TokenLists<List, State> lists_of_warp(const IntervalArguments& a, char* lists) {
    TokenLists<List, State> w;
    const int warp = threadIdx.x / 32, first_row = warp * 16, lines = max(a.tokens_per_tile, 4);
    w.first_token = a.by_row_group.quotient(first_row);
    w.tokens = a.row_group <= 16              ? a.by_row_group.quotient(16)
               : first_row % a.row_group == 0 ? 1
                                              : 0;
    auto* const sums = reinterpret_cast<float*>(lists);
    auto* const first_list = reinterpret_cast<List*>(sums + lines * kSelectKeys);
    w.sums = sums + (a.row_group <= 16 ? w.first_token : warp) * kSelectKeys;
    w.lists = first_list + w.first_token;
    w.states = reinterpret_cast<State*>(first_list + a.tokens_per_tile) + w.first_token;
    w.places = a.selection.top_n - a.selection.num_initial - a.selection.num_local;
    return w;
  }

  template <class Lists>
  __device__ __forceinline__ static void choose_by_score(const IntervalArguments& a, int steps,
                                                         const uint32_t (&q)[DK / 16][4],
                                                         const float (&lse)[2], uint32_t keys,
                                                         const Lists& w) {
    const IntervalTile tile = IntervalTile::again(a);
    const T* k = static_cast<const T*>(a.k.data) + tile.batch * a.k.batch +
                 tile.kv_head * a.k.head + tile.first_key * a.k.token;
    const auto fetch = [&](int i) {
      if (i < 2 * steps) {
        const int first = i * kTileKeys,
                  count = min(a.num_keys - tile.first_key - first, kTileKeys);
        copy_tile<DK>(keys + i % 2 * kKeyBytes, count > 0 ? k + first * a.k.token : k, a.k.token,
                      count);
      }
      commit_copies();
    };
    int limit[2];  // keys from here on count nothing for a row
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const IntervalRow row = tile.row(a, first_row_of_thread() + 8 * r);
      limit[r] = row.used ? row.keys.end : 0;
      shift[r] = -lse[r] * kLog2e;
    }
    fetch(0);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      float scores[16][4];
      wait_copies<0>();
      __syncthreads();
      fetch(2 * step + 1);
      multiply_keys<0, DK, T>(q, keys, scores);
      wait_copies<0>();
      __syncthreads();
      fetch(2 * step + 2);
      multiply_keys<8, DK, T>(q, keys + kKeyBytes, scores);
      to_probabilities(a, limit, shift, step * kSelectKeys, scores);
      switch (a.row_group) {
        case 1:
          offer<1>(a, scores, w, step);
          break;
        case 2:
          offer<2>(a, scores, w, step);
          break;
        case 4:
          offer<4>(a, scores, w, step);
          break;
        case 8:
          offer<8>(a, scores, w, step);
          break;
        case 16:
          offer<16>(a, scores, w, step);
          break;
        default:
          offer_of_warps(a, scores, w, step);
      }
    }
  }

  /// Logits of the keys from `first` on -> probabilities, 0 where a key does not count.
  __device__ __forceinline__ static void to_probabilities(const IntervalArguments& a,
                                                          const int (&limit)[2],
                                                          const float (&shift)[2], int first,
                                                          float (&scores)[16][4]) {
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first + j * 8 + (threadIdx.x % 4) * 2 + i % 2;
        const float p = fast_exp2(fmaf(scores[j][i], a.scale_log2, shift[i / 2]));
        scores[j][i] = key < limit[i / 2] ? p : 0.f;
      }
  }

  /// Sums over the heads of every token, and the blocks of the step to their lists.
  template <int kGroup, class Lists>
  __device__ __forceinline__ static void offer(const IntervalArguments& a,
                                               const float (&scores)[16][4], const Lists& w,
                                               int step) {
    RowSums<kGroup> sums;
    sums.take([&](int i) { return scores[i / 4][i % 4]; });
    sums.store(w.sums);
    __syncwarp();
    choose<kGroup>(a, w, step);
  }
  /// The same for tokens that have the rows of several warps; the first one chooses.
  template <class Lists>
  __device__ __forceinline__ static void offer_of_warps(const IntervalArguments& a,
                                                        const float (&scores)[16][4],
                                                        const Lists& w, int step) {
    RowSums<16> sums;
    sums.take([&](int i) { return scores[i / 4][i % 4]; });
    sums.store(w.sums);
    __syncthreads();
    if (w.tokens == 0) return;
    for (int i = threadIdx.x % 32; i < kSelectKeys; i += 32)
      for (int warp = 1; warp < a.row_group / 16; ++warp)
        w.sums[i] += w.sums[warp * kSelectKeys + i];
    __syncwarp();
    choose<16>(a, w, step);
  }
  template <int kGroup, class Lists>
  __device__ __forceinline__ static void choose(const IntervalArguments& a, const Lists& w,
                                                int step) {
    constexpr bool kShort = std::is_same_v<decltype(Lists::lists), BlockList*>;
    if (kShort && a.strides == 4 && a.overlap == 1) {
      if constexpr (kShort) choose_of_four<kGroup>(a.selection, w, step);
    } else {
      choose_of_any<kGroup>(a, w, step);
    }
    __syncwarp();
  }
};

}  // namespace nsa::kernels::sm80
