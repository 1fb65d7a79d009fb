// What the warps do that feed the kernel for whole tiles under masks: words of tokens, Q; parts, K
// and V.
#pragma once
#include "nsa/kernels/selected/sm90/selected_dense_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, typename T>
struct SelectedDenseLoads : SelectedDenseTiles<DK, DV, T> {
  using Base = SelectedDenseTiles<DK, DV, T>;
  using Base::kRows;
  using Base::kStages;
  using typename Base::Full;
  using typename Base::Shared;
  using typename Base::Tile;
  using typename Base::TokenWord;
  using typename Base::Walk;
  using typename Base::Words;
  using typename Base::WorkQueue;

  /// Three warps: the words of every tile of rows; one thread of them has its Q brought.
  CUTE_DEVICE static void produce_words(const DenseArguments& a, Shared& s) {
    for (WorkQueue at; at.template next<false>(a, s);) {
      const Tile tile = at.tile(a);
      wait_for(s.words_empty[at.words()], at.words_phase() ^ 1);
      make_words(a, s.words[at.words()], tile);
      arrive_at(s.words_full[at.words()]);
      if (threadIdx.x == 32) {
        wait_for(s.q_empty, (at.slot & 1) ^ 1);
        Base::load_q(a, s, tile);
      }
      __syncwarp();  // or the next barrier of these warps meets half a one
    }
  }
  CUTE_DEVICE static void make_words(const DenseArguments& a, Words& words, const Tile& tile) {
    constexpr int kSharing = 96;
    const int thread = threadIdx.x - 32;
    const DenseParts& from = a.queries.parts;
    const bool counted = from.parts != nullptr && thread < tile.count;
    const int count =
        counted ? __ldg(from.row_counts + Base::token_row(a, tile, thread, a.num_queries)) : 0;
    if (thread < kRows)
      words.of[thread] = {0, thread < tile.count ? Base::limit_of(a, tile.first + thread) : 0,
                          int16_t(count), 0};
    if (thread == 0) words.all = 0, words.most = 0;
    cutlass::arch::NamedBarrier::sync(kSharing, 2);
    if (count > 0) atomicMax(&words.most, count);
#pragma unroll 1
    for (int i = thread; i < tile.count * a.num_ranges; i += kSharing) {
      const int token = i / a.num_ranges, limit = Base::limit_of(a, tile.first + token);
      const int2 range = __ldg(
          a.ranges + Base::token_row(a, tile, token, a.queries.tokens_of_batch) * a.num_ranges +
          i % a.num_ranges);
      const RangeTiles tiles(range, limit);
      const uint64_t bits = tiles.bits(Base::first_newest_tile(a, tile.first + token), tile.base);
      Base::add_bits(words.of[token].tiles, bits);
      Base::add_bits(words.all, bits);
      if (!tiles.whole) words.of[token].ragged = 1;
    }
  }

  /// One warp: parts, then K and V of every tile, as places become free.
  CUTE_DEVICE static void produce(const DenseArguments& a, Shared& s) {
    Walk walk;
    for (WorkQueue at; at.template next<false>(a, s);) {
      const Tile tile = at.tile(a);
      const Words& words = s.words[at.words()];
      wait_for(s.words_full[at.words()], at.words_phase());
      if (a.streamed) {
        stream_parts(a, s, tile, words, walk);
      } else if (a.queries.parts.parts != nullptr) {
        prefetch_parts(a, tile, words);
      }
      for (walk.left = words.all; walk.next();) {
        if (threadIdx.x != 0) continue;
        wait_for(s.k_empty[walk.stage], walk.phase ^ 1);
        Base::template load_tile<DK>(a.k_map, s.k_full[walk.stage], s.k[walk.stage], tile,
                                     walk.bit);
        wait_for(s.v_empty[walk.stage], walk.phase ^ 1);
        s.bad[walk.stage] = 0, s.bit[walk.stage] = walk.bit;
        Base::template load_tile<DV>(a.v_map, s.v_full[walk.stage], s.v[walk.stage], tile,
                                     walk.bit);
      }
      __syncwarp();
      arrive_at(s.words_empty[at.words()]);  // every lane has read words
    }
  }

  /// Two parts of every row a stage, through the places of K and V: a lane has a token's. Where
  /// groups fill blocks of 8 rows, the first one of all rows is in the place of K and the second in
  /// that of V; with groups of 4, where a block has both, those of the first 32 rows and of the
  /// others.
  CUTE_DEVICE static void stream_parts(const DenseArguments& a, Shared& s, const Tile& tile,
                                       const Words& words, Walk& walk) {
    const DenseParts& from = a.queries.parts;
    const int lane = threadIdx.x, group = a.group_size, most = words.most;
    const bool used = lane < tile.count, halves = group == 4;
    const int count = used ? max(words.of[lane].count, 0) : 0;
    uint32_t row = Base::first_part(a, tile, used ? lane : 0);
    const uint32_t bytes = halves ? 8 * DV * sizeof(T) : group * DV * sizeof(T);
    const int place = (halves ? lane % 8 * 8 : lane * group) * DV;
#pragma unroll 1
    for (int first = 0; first < most; first += 2, row += 2 * group) {
      walk.next_stage();
      const int left = min(count - first, 2);
      const T* const parts = static_cast<const T*>(from.parts) + int64_t(row) * DV;
      const uint32_t described = max(left, 0) * group * sizeof(float2),
                     in_k = left > 0 && !(halves && lane >= 8) ? bytes : 0,
                     in_v = halves ? (left > 0 && lane >= 8 ? bytes : 0) : (left > 1 ? bytes : 0);
      uint64_t& k_full = s.k_full[walk.stage];
      wait_for(s.k_empty[walk.stage], walk.phase ^ 1);
      expect(k_full, in_k + described);
      if (described > 0)
        copy_bulk(s.stats[walk.stage] + lane * 2 * group, from.stats + row, described, k_full);
      if (in_k > 0) copy_bulk(s.k[walk.stage] + place, parts, in_k, k_full);
      uint64_t& v_full = s.v_full[walk.stage];
      wait_for(s.v_empty[walk.stage], walk.phase ^ 1);
      expect(v_full, in_v);
      if (in_v > 0)
        copy_bulk(s.v[walk.stage] + place, parts + (halves ? 0 : group * DV), in_v, v_full);
    }
  }
  /// By a warp: the sum of its lanes' bytes.
  CUTE_DEVICE static void expect(uint64_t& full, uint32_t bytes) {
    bytes = __reduce_add_sync(~0u, bytes);
    if (threadIdx.x == 0) Full::arrive_and_expect_tx(&full, bytes);
    __syncwarp();
  }
  /// Copies bytes that are not read again (evict first), a multiple of 16.
  CUTE_DEVICE static void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t& full) {
    sm90::copy_bulk(portable::shared_address(to), from, bytes, portable::shared_address(&full),
                    static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST));
  }

  /// Parts that computing warps will read themselves: the first ones are brought to the L2 cache
  /// while the tile of rows before is computed. All of them, for all SMs, would not stay there.
  CUTE_DEVICE static void prefetch_parts(const DenseArguments& a, const Tile& tile,
                                         const Words& words) {
#pragma unroll 1
    for (int token = threadIdx.x; token < tile.count; token += 32) {
      const int count = min(words.of[token].count, 6);
      Base::prefetch_parts_of_token(a, tile, token, count);
    }
  }
};

}  // namespace nsa::kernels::sm90
