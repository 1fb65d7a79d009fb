// Interval attention, forward: what the warps that do not compute do. Words of ranges; Q, K and V.
#pragma once
#include "nsa/kernels/interval/sm90/interval_shape.cuh"
#include "nsa/kernels/interval/sm90/range_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalLoads : IntervalShape<DK, DV, BN, T, kSelect> {
  using Base = IntervalShape<DK, DV, BN, T, kSelect>;
  using Base::arrive;
  using Base::kKeep;
  using Base::kRows;
  using Base::kStages;
  using Base::kWords;
  using Base::tile_again;
  using Base::tile_of;
  using Base::unit_of;
  using Base::wait;
  using typename Base::Shared;
  using typename Base::Steps;
  using typename Base::Tile;

  /// A warp of `warps`: the words of its share of the tokens of a tile from their ranges, some
  /// tokens at once, a lane a range. `any`: the tiles of any of them.
  CUTE_DEVICE static void make_words(const IntervalArguments& a, TokenWords* words, int index,
                                     int warp, int warps, uint32_t (&any)[2]) {
    const int lanes = a.lanes_of_ranges;  // of a token
    uint32_t all[2] = {};
    CUTE_NO_UNROLL
    for (int place = warp * 32; place < a.tokens_per_tile * lanes; place += warps * 32) {
      const int token = (place + static_cast<int>(threadIdx.x % 32)) / lanes;
      TokenWords own = words_of(a, tile_again(a, index), token);
      CUTE_NO_UNROLL
      for (int mask = lanes / 2; mask > 0; mask /= 2) {
        own.halves[0] |= __shfl_xor_sync(~0u, own.halves[0], mask);
        own.halves[1] |= __shfl_xor_sync(~0u, own.halves[1], mask);
        own.ragged |= __shfl_xor_sync(~0u, own.ragged, mask);
      }
      if (threadIdx.x % lanes == 0 && token < a.tokens_per_tile) words[token] = own;
      all[0] |= own.halves[0], all[1] |= own.halves[1];
    }
    CUTE_UNROLL
    for (int i = 0; i < 2; ++i) {
      all[i] = __reduce_or_sync(~0u, all[i]);
      if (threadIdx.x % 32 == 0) any[i] = all[i];
    }
  }
  /// This lane's share of the words of a token; none where the tile has no such token.
  CUTE_DEVICE static TokenWords words_of(const IntervalArguments& a, const Tile& tile, int token) {
    TokenWords words{};
    if (token >= tile.count) return words;
    token += tile.first;
    const int limit = min(a.first_position + token + 1, a.num_keys);
    const int64_t row = int64_t(tile.batch) * a.tokens_of_batch + token;
    const int2* ranges = a.ranges + (row * a.by_kv_heads.value + tile.kv_head) * a.num_ranges;
    CUTE_NO_UNROLL
    for (int i = threadIdx.x % a.lanes_of_ranges; i < a.num_ranges; i += a.lanes_of_ranges) {
      const RangeTiles tiles(ranges[i], limit);
      const uint64_t bits = tiles.bits();
      words.halves[0] |= uint32_t(bits), words.halves[1] |= uint32_t(bits >> 32);
      words.ragged |= !tiles.whole;
    }
    return words;
  }
  CUTE_DEVICE static void wait_words(Shared& s, int i) { wait(s.words_full[i % 2], i / 2 & 1); }
  /// Three warps: the words of every tile, while the one before it is computed.
  CUTE_DEVICE static void produce_words(const IntervalArguments& a, Shared& s) {
    for (int i = 0; unit_of(i) < a.units; ++i) {
      wait(s.words_empty[i % 2], (i / 2 & 1) ^ 1);
      const int warp = threadIdx.x / 32 - 1;
      make_words(a, s.words[i % 2], i, warp, 3, s.any_words[i % 2][warp]);
      arrive(s.words_full[i % 2]);
    }
  }
  /// Loads of this CTA so far, as its threads count them: of K and V, modulo 256, and of Q. They
  /// share a register.
  struct Loads {
    uint32_t all = 0;

    CUTE_DEVICE uint32_t k() const { return all & 0xff; }
    CUTE_DEVICE uint32_t v() const { return all >> 8 & 0xff; }
    CUTE_DEVICE int q() const { return static_cast<int>(all >> 16); }
    CUTE_DEVICE void add_k(int count) { all = (all & ~0xffu) | ((all + count) & 0xff); }
    CUTE_DEVICE void add_v() { all = (all & ~0xff00u) | ((all + 0x100) & 0xff00); }
    CUTE_DEVICE void add_q() { all += 1 << 16; }
  };
  CUTE_DEVICE static uint32_t stage_of(uint32_t load) { return load % kStages; }
  CUTE_DEVICE static uint32_t phase_of(uint32_t load) { return load / kStages & 1; }

  /// A computing warp has read Q. Where Q was read by plain loads, every thread arrives.
  CUTE_DEVICE static void release_q(Shared& s) {
    if (kSelect || threadIdx.x % 32 == 0) arrive(s.q_empty);
  }

  /// The thread that has loaded Q of the first tile: Q, K and V of every tile as places become
  /// free.
  CUTE_DEVICE static void produce(const IntervalArguments& a, Shared& s, Loads& loads) {
    bool has_q = true;
    int has_v = 0;  // steps whose V is loaded
    for (int i = 0; unit_of(i) < a.units; ++i) {
      const Tile tile = tile_of(a, unit_of(i));
      Steps steps(tile);
      if (kWords && a.ranges != nullptr) {
        wait_words(s, i);
        steps.take_words(s, i % 2);
        arrive(s.words_empty[i % 2]);
      }
      CUTE_NO_UNROLL
      for (int step = 0; step < steps.count; ++step) {
        const int key = steps.next_key();
        load_k(a, s, tile, loads, key);
        if (step == 0 && !has_q) load_q(a, s, i, loads);
        if (step >= has_v) load_v(a, s, tile, loads, key);
      }
      if (steps.count == 0 && !has_q) load_q(a, s, i, loads);
      has_q = false, has_v = 0;
      if constexpr (kSelect) {  // the keys once more, for the scores; then Q and V are free
        const int before = min(tile.select_steps, 2);
        int step = 0;
        CUTE_NO_UNROLL
        for (; step < before; ++step) load_k(a, s, tile, loads, step * BN);
        if (a.apart && unit_of(i + 1) < a.units) {
          load_q(a, s, i + 1, loads);
          const Tile next = tile_again(a, i + 1);
          has_q = true;
          CUTE_NO_UNROLL
          for (; has_v < min(next.steps, kStages); ++has_v) load_v(a, s, next, loads, has_v * BN);
        }
        CUTE_NO_UNROLL
        for (; step < tile.select_steps; ++step) load_k(a, s, tile, loads, step * BN);
      }
    }
  }
  /// Once more, for `redo`.
  CUTE_DEVICE static void produce_again(const IntervalArguments& a, Shared& s, int index,
                                        Loads& loads) {
    load_q(a, s, index, loads);
    for (int step = 0; step < tile_again(a, index).steps; ++step) {
      const Tile tile = tile_again(a, index);
      load_k(a, s, tile, loads, tile.begin + step * BN);
      load_v(a, s, tile, loads, tile.begin + step * BN);
    }
  }
  /// The next load of Q (of K, of V, from `key` on), when its place is free.
  CUTE_DEVICE static void load_q(const IntervalArguments& a, Shared& s, int index, Loads& loads) {
    const Tile tile = tile_again(a, index);
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const uint64_t once = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST);
    wait(s.q_empty, (loads.q() & 1) ^ 1);
    loads.add_q();
    Full::arrive_and_expect_tx(&s.q_full, a.tokens_per_tile * a.row_group * DK * sizeof(T));
    // Rows of a token behind its group are those of the next heads and are not used.
    for (int c = 0; c < DK; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.q_map, &s.q_full, once, s.q + c * kRows, c,
                             tile.kv_head * a.group_size, tile.first, tile.batch);
  }
  CUTE_DEVICE static void load_k(const IntervalArguments& a, Shared& s, const Tile& tile,
                                 Loads& loads, int key) {
    const uint32_t stage = stage_of(loads.k());
    wait(s.k_empty[stage], phase_of(loads.k()) ^ 1);
    loads.add_k(1);
    load_keys<DK>(a.k_map, s.k_full[stage], s.k[stage], tile, key);
  }
  CUTE_DEVICE static void load_v(const IntervalArguments& a, Shared& s, const Tile& tile,
                                 Loads& loads, int key) {
    const uint32_t stage = stage_of(loads.v());
    wait(s.v_empty[stage], phase_of(loads.v()) ^ 1);
    loads.add_v();
    load_keys<DV>(a.v_map, s.v_full[stage], s.v[stage], tile, key);
  }
  template <int kColumns>
  CUTE_DEVICE static void load_keys(const CUtensorMap& map, uint64_t& full, T* to, const Tile& tile,
                                    int key) {
    cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(&full,
                                                                   BN * kColumns * sizeof(T));
    for (int c = 0; c < kColumns; c += 64)
      SM90_TMA_LOAD_4D::copy(&map, &full, kKeep, to + c * BN, c, tile.kv_head, tile.first_key + key,
                             tile.batch);
  }
};

}  // namespace nsa::kernels::sm90
