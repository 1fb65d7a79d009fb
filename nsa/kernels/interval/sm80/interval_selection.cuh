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
struct TokenLists {
  int tokens, first_token;  // of the tile
  float* sums;              // [tokens][kSelectKeys]
  BlockList* lists;
  ListState* states;
  int places;  // blocks to choose by score
};

template <int DK, typename T>
struct IntervalSelection {
  static_assert(kSelectKeys == 2 * kTileKeys);
  static constexpr int kKeyBytes = kTileKeys * DK * 2;
  static constexpr int kTokenBytes =
      sizeof(BlockList) + sizeof(ListState) + kSelectKeys * sizeof(float);

  /// All threads call when K's places and `lists` are free. q: as A operand.
  __device__ static void run(const IntervalArguments& a, const uint32_t (&q)[DK / 16][4],
                             const float (&lse)[2], uint32_t keys, char* lists) {
    const TokenLists w = lists_of_warp(a, lists);
    const int steps = IntervalTile::again(a).select_steps;
    if (steps > 0) {
      begin_lists(a, IntervalTile::again(a), w);
      choose_by_score(a, steps, q, lse, keys, w);
    }
    write_lists(a, IntervalTile::again(a), w);
  }

  __device__ static TokenLists lists_of_warp(const IntervalArguments& a, char* lists) {
    TokenLists w;
    w.tokens = a.by_row_group.quotient(16);
    w.first_token = a.by_row_group.quotient(threadIdx.x / 32 * 16);
    auto* const sums = reinterpret_cast<float*>(lists);
    auto* const first_list = reinterpret_cast<BlockList*>(sums + a.tokens_per_tile * kSelectKeys);
    w.sums = sums + w.first_token * kSelectKeys;
    w.lists = first_list + w.first_token;
    w.states = reinterpret_cast<ListState*>(first_list + a.tokens_per_tile) + w.first_token;
    w.places = a.selection.top_n - a.selection.num_initial - a.selection.num_local;
    return w;
  }

  __device__ static void choose_by_score(const IntervalArguments& a, int steps,
                                         const uint32_t (&q)[DK / 16][4], const float (&lse)[2],
                                         uint32_t keys, const TokenLists& w) {
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
        default:
          offer<16>(a, scores, w, step);
      }
    }
  }

  /// Logits of the keys from `first` on -> probabilities, 0 where a key does not count.
  __device__ static void to_probabilities(const IntervalArguments& a, const int (&limit)[2],
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
  template <int kGroup>
  __device__ static void offer(const IntervalArguments& a, const float (&scores)[16][4],
                               const TokenLists& w, int step) {
    RowSums<kGroup> sums;
    sums.take([&](int i) { return scores[i / 4][i % 4]; });
    sums.store(w.sums);
    __syncwarp();
    if (a.strides == 4 && a.overlap == 1)
      choose_of_four<kGroup>(a.selection, w, step);
    else
      choose_of_any<kGroup>(a, w, step);
    __syncwarp();
  }
};

}  // namespace nsa::kernels::sm80
