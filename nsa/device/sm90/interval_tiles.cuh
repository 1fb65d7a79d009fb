// Interval attention, forward: the tile of a CTA, its shared memory and its loads.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/numeric_types.h>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "nsa/device/interval_attention.h"
#include "nsa/device/sm90/block_candidates.cuh"
#include "nsa/device/sm90/interval_arguments.h"
#include "nsa/device/sm90/interval_attention_launch.h"
#include "nsa/device/sm90/interval_bounds.h"
#include "nsa/device/sm90/online_softmax.cuh"
#include "nsa/device/sm90/range_tiles.cuh"

namespace nsa::device::sm90 {

using namespace cute;

constexpr float kLog2e = 1.4426950408889634f;

/// Named barriers of the warpgroups that compute.
enum IntervalBarrier { kPlacesFree = 0, kTilesStored = 1, kRepair = 2, kTurn = 3 };

/// The warpgroups enqueue their products by turns, so that one has the tensor cores while the
/// others work on their scores. The first one begins, all take the same number of turns.
template <int kWarpgroups>
struct Turn {
  CUTE_DEVICE explicit Turn(int warpgroup) : warpgroup(warpgroup) {
    if (warpgroup == kWarpgroups - 1) pass();
  }
  CUTE_DEVICE void await() const { cutlass::arch::NamedBarrier::sync(256, kTurn + warpgroup); }
  CUTE_DEVICE void pass() const {
    const int next = warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1;
    cutlass::arch::NamedBarrier::arrive(256, kTurn + next);
  }
  /// Takes the turn that is passed to nobody in the end.
  CUTE_DEVICE void end() const {
    if (warpgroup == 0) await();
  }
  int warpgroup;
};

/// The tiles of 64 keys that a token attends; whether a range is not made of such.
struct TokenWords {
  uint32_t halves[2], ragged;
};

/// Types and steps that all parts of a CTA share.
template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalTiles {
  using Element = T;
  static constexpr int kWarpgroups = warpgroups_of(DK);  // that compute
  static constexpr int kRows = 64 * kWarpgroups, kConsumers = 128 * kWarpgroups;
  static constexpr int kThreads = 128 + kConsumers;
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;
  static constexpr bool kWords = !kSelect && BN == 128;  // takes ranges of tiles
  static constexpr int kStages = DK == 64 ? 4 : 2;
  using Turns = Turn<kWarpgroups>;
  using LayoutQ =
      decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<kRows>, Int<DK>>{}));
  using LayoutK =
      decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<BN>, Int<DK>>{}));
  // V is stored as it lies in memory, keys x columns; the product wants columns x keys.
  using LayoutV = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{}, Shape<Int<DV>, Int<BN>>{},
                                         Step<_2, _1>{}));
  using MmaScores =
      decltype(make_tiled_mma(GMMA::ss_op_selector<T, T, float, Shape<_64, Int<BN>, _64>>()));
  using MmaOut =
      decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<DV>, Int<BN>>,
                                                   GMMA::Major::K, GMMA::Major::MN>()));
  static constexpr int kReleasesOfQ = kSelect ? kConsumers : kConsumers / 32;
  static constexpr uint64_t kKeep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);

  struct Shared {
    alignas(1024) T k[kStages][cosize_v<LayoutK>];
    ListState states[kSelect ? kRows : 1];
    uint32_t redo[kMostTilesOfCta / 32];  // bits of tiles with an output that is not finite
    alignas(8) uint64_t q_full, q_empty, k_full[kStages], v_full[kStages], k_empty[kStages],
        v_empty[kStages], stored, words_full[2], words_empty[2];
    TokenWords words[2][kWords ? kRows : 1];  // of the tokens of a tile and of the next one
    uint32_t any_words[2][3][2];              // of any token, as a warp knows it
    alignas(1024) T q[cosize_v<LayoutQ>];
    alignas(1024) T v[kStages][cosize_v<LayoutV>];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;
  static constexpr int kMostSharedBytes = 232448;

  /// Lists and sums of the selection pass lie behind all others, or, where there is no room, from Q
  /// on, when Q and V are no longer read.
  static constexpr int places_bytes(int tokens) {
    constexpr int kListed = sizeof(BlockList) + kSelectKeys * sizeof(float);
    return tokens * (kWarpgroups == 2 ? kCandidatePlaces : kListed);
  }
  static constexpr int shared_bytes(int tokens, bool apart) {
    constexpr int kOver = sizeof(Shared::q) + sizeof(Shared::v);
    const int places = kSelect ? places_bytes(tokens) : 0;
    return kSharedBytes + (apart ? places : places > kOver ? places - kOver : 0);
  }
  static_assert(shared_bytes(kRows, false) <= kMostSharedBytes);
  CUTE_DEVICE static BlockList* lists_of(const IntervalArguments& a, Shared& s) {
    return a.apart ? reinterpret_cast<BlockList*>(&s + 1) : reinterpret_cast<BlockList*>(s.q);
  }
  CUTE_DEVICE static float* sums_of(const IntervalArguments& a, Shared& s) {
    return reinterpret_cast<float*>(lists_of(a, s) + a.tokens_per_tile);
  }

  CUTE_DEVICE static Span keys_at(const IntervalArguments& a, int position) {
    Span keys = keys_of(a.rule, position, a.num_keys, a.by_stride);
    if constexpr (kSelect) keys.begin = 0;  // no window: known to the compiler
    return keys;
  }

  /// The i-th tile of a CTA; none when it is not below a.units. CTAs take tiles to and fro, as the
  /// first ones are the longest.
  CUTE_DEVICE static int unit_of(int i) {
    const int place = static_cast<int>(i % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
    return i * static_cast<int>(gridDim.x) + place;
  }

  /// A tile: tokens [first, first + count) of a KV head and the keys any of them attends.
  struct Tile {
    int first, count, begin, steps;
    int select_steps;  // steps of the selection pass
    int kv_head, batch;
  };
  CUTE_DEVICE static Tile tile_of(const IntervalArguments& a, int unit) {
    Tile tile;
    const int index = a.by_lanes.quotient(unit), lane = a.by_lanes.remainder(unit);
    tile.batch = a.by_kv_heads.quotient(lane);
    tile.kv_head = lane - tile.batch * static_cast<int>(a.by_kv_heads.value);
    // The last tokens attend the most keys: they come first, those of all KV heads.
    tile.first = (a.tiles - 1 - index) * a.tokens_per_tile;
    tile.count = min(a.tokens_per_tile, a.num_queries - tile.first);
    tile.begin = keys_at(a, a.first_position + tile.first).begin;
    const int end = keys_at(a, a.first_position + tile.first + tile.count - 1).end;
    tile.steps = max(0, (end - tile.begin + BN - 1) / BN);
    tile.select_steps = 0;
    if constexpr (kSelect) {
      const BlockSelection& choice = a.selection;
      const int current = a.by_sel_block.quotient(a.first_position + tile.first + tile.count - 1);
      const int free_blocks = current + 1 - choice.num_local;  // candidates are below this
      const bool places = choice.top_n > choice.num_initial + choice.num_local;
      if (current + 1 > choice.top_n && places)
        tile.select_steps = (free_blocks * a.strides + BN - 1) / BN;
    }
    return tile;
  }

  /// The steps of a tile, their first keys one after the other.
  struct Steps {
    int count, key;
    uint32_t left = 0;  // pairs of tiles, with ranges of these

    CUTE_DEVICE explicit Steps(const Tile& tile) : count(tile.steps), key(tile.begin - BN) {}
    CUTE_DEVICE void take_words(const Shared& s, int buffer) {
      const uint32_t (&any)[3][2] = s.any_words[buffer];
      left = pairs_of(any[0][0] | any[1][0] | any[2][0]) |
             pairs_of(any[0][1] | any[1][1] | any[2][1]) << 16;
      count = __popc(left);
    }
    CUTE_DEVICE int next_key() {
      key += BN;
      if (kWords && left != 0) {
        key = (__ffs(static_cast<int>(left)) - 1) * BN;
        left &= left - 1;
      }
      return key;
    }
    /// Bit i: bit 2 i or 2 i + 1 of x.
    CUTE_DEVICE static uint32_t pairs_of(uint32_t x) {
      x = (x | x >> 1) & 0x55555555;
      x = (x | x >> 1) & 0x33333333;
      x = (x | x >> 2) & 0x0f0f0f0f;
      x = (x | x >> 4) & 0x00ff00ff;
      return (x | x >> 8) & 0xffff;
    }
  };

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
  /// The CTA's tile `index`, found anew wherever it is asked for: that takes fewer registers.
  CUTE_DEVICE static Tile tile_again(const IntervalArguments& a, int index) {
    asm volatile("" : "+r"(index));
    return tile_of(a, unit_of(index));
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

  CUTE_DEVICE static void wait(uint64_t& barrier, uint32_t phase) {
    cutlass::arch::ClusterTransactionBarrier::wait(&barrier, phase);
  }
  CUTE_DEVICE static void arrive(uint64_t& barrier) {
    cutlass::arch::ClusterBarrier::arrive(&barrier);
  }

  /// A computing warp has read Q. Where Q was read by plain loads, every thread says so.
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
    // Rows of a token behind its group are those of the next heads, which nobody looks at.
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
      SM90_TMA_LOAD_4D::copy(&map, &full, kKeep, to + c * BN, c, tile.kv_head, key, tile.batch);
  }

  /// What a row of the tile is: a head of the group at a token of the tile.
  struct Row {
    int token, head;
    /// Whether it is a row of the problem.
    CUTE_DEVICE bool used(const IntervalArguments& a, const Tile& tile) const {
      return head < a.group_size && token < tile.count;
    }
    /// Where it stands among all rows [B, S, Hq].
    CUTE_DEVICE int64_t place(const IntervalArguments& a, const Tile& tile) const {
      return (int64_t(tile.batch) * a.tokens_of_batch + tile.first + token) * a.num_heads +
             tile.kv_head * a.group_size + head;
    }
  };
  CUTE_DEVICE static Row row_of(const IntervalArguments& a, int row) {
    const int token = a.by_row_group.quotient(row);
    return {token, row - token * a.row_group};
  }

  /// The two rows of a thread of a warpgroup, and their keys.
  struct Rows {
    int index[2];  // in the tile
    Span keys[2];
    Span inner;  // keys that every row of the tile attends
  };
  CUTE_DEVICE static Rows rows_of(const IntervalArguments& a, const Tile& tile, int half) {
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));  // found anew, as the tile is
    Rows rows;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      rows.index[r] = half * 64 + thread % 128 / 32 * 16 + thread % 32 / 4 + 8 * r;
      const int token = min(row_of(a, rows.index[r]).token, tile.count - 1);
      rows.keys[r] = keys_at(a, a.first_position + tile.first + token);
    }
    rows.inner = {keys_at(a, a.first_position + tile.first + tile.count - 1).begin,
                  keys_at(a, a.first_position + tile.first).end};
    return rows;
  }

  /// The words of a thread's rows.
  struct RowWords {
    const TokenWords* of[2];

    CUTE_DEVICE RowWords(const IntervalArguments& a, const Shared& s, const Tile& tile,
                         const Rows& rows, int buffer) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        of[r] = s.words[buffer] + min(row_of(a, rows.index[r]).token, tile.count - 1);
    }
    /// Ragged rows have a sum that is NaN from the beginning.
    CUTE_DEVICE void begin(OnlineSoftmax& softmax) const {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        if (of[r]->ragged) softmax.sum[r] = NAN;
    }
  };

  /// Accumulators of a warpgroup: element i is column (i / 4) * 8 + (lane % 4) * 2 + i % 2 of the
  /// thread's row (i / 2) % 2.
  CUTE_DEVICE static auto scores_fragment() {
    return partition_fragment_C(MmaScores{}, Shape<_64, Int<BN>>{});
  }
  CUTE_DEVICE static auto out_fragment() {
    return partition_fragment_C(MmaOut{}, Shape<_64, Int<DV>>{});
  }
  /// Probabilities as A operand of the second product: the registers of scores, packed in pairs.
  CUTE_DEVICE static auto probs_fragment() {
    return make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, Int<BN / 16>>>{});
  }

  /// Enqueues scores = Q K^T with a stage of K.
  template <class Scores>
  CUTE_DEVICE static void multiply_scores(Shared& s, int half, int stage, Scores& scores) {
    MmaScores mma;
    auto thread = mma.get_thread_slice(threadIdx.x % 128);
    Tensor own_q = local_tile(make_tensor(make_smem_ptr(s.q), LayoutQ{}), Shape<_64, Int<DK>>{},
                              make_coord(half, 0));
    Tensor a = thread.partition_fragment_A(own_q);
    Tensor b = thread.partition_fragment_B(make_tensor(make_smem_ptr(s.k[stage]), LayoutK{}));
    warpgroup_fence_operand(scores);
    warpgroup_arrive();
    mma.accumulate_ = GMMA::ScaleOut::Zero;
    CUTE_UNROLL
    for (int i = 0; i < size<2>(b); ++i) {
      gemm(mma, a(_, _, i), b(_, _, i), scores);
      mma.accumulate_ = GMMA::ScaleOut::One;
    }
    warpgroup_commit_batch();
  }
  /// Enqueues out += P V with a stage of V.
  template <class Probs, class Out>
  CUTE_DEVICE static void multiply_out(Shared& s, int stage, Probs& probs, Out& out) {
    MmaOut mma;
    auto thread = mma.get_thread_slice(threadIdx.x % 128);
    Tensor b = thread.partition_fragment_B(make_tensor(make_smem_ptr(s.v[stage]), LayoutV{}));
    warpgroup_fence_operand(out);
    warpgroup_fence_operand(probs);
    warpgroup_arrive();
    mma.accumulate_ = GMMA::ScaleOut::One;
    CUTE_UNROLL
    for (int i = 0; i < size<2>(b); ++i) gemm(mma, probs(_, _, i), b(_, _, i), out);
    warpgroup_commit_batch();
  }

  template <class Scores>
  CUTE_DEVICE static void mask(const Rows& rows, int first, Scores& scores) {
    const int begin = max(rows.keys[0].begin, rows.keys[1].begin),
              end = min(rows.keys[0].end, rows.keys[1].end);
    if (__all_sync(~0u, first >= begin && first + BN <= end)) return;
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i) {
      const int key = first + (i / 4) * 8 + (threadIdx.x % 4) * 2 + i % 2, r = (i / 2) % 2;
      if (key < rows.keys[r].begin || key >= rows.keys[r].end) scores(i) = -INFINITY;
    }
  }
  /// Likewise where ranges are tiles: a step is two of them.
  template <class Scores>
  CUTE_DEVICE static void mask_tiles(const Rows& rows, const RowWords& words, int first,
                                     Scores& scores) {
    bool on[2][2], all = true;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const uint32_t pair = words.of[r]->halves[first / 2048] >> first / 64 % 32;
      on[r][0] = pair & 1, on[r][1] = pair & 2;
      all &= (pair & 3) == 3;
    }
    const bool inside = first + BN <= min(rows.keys[0].end, rows.keys[1].end);
    if (__all_sync(~0u, all && inside)) return;
    if (__all_sync(~0u, inside)) {
      CUTE_UNROLL
      for (int i = 0; i < size(scores); ++i)
        scores(i) = on[i / 2 % 2][i / 32] ? scores(i) : -INFINITY;
      return;
    }
    int columns[2][2];  // from here on a tile's columns are not attended
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      for (int j = 0; j < 2; ++j) columns[r][j] = on[r][j] ? rows.keys[r].end - first : 0;
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i)
      if ((i / 4) * 8 + (threadIdx.x % 4) * 2 + i % 2 >= columns[i / 2 % 2][i / 32])
        scores(i) = -INFINITY;
  }
  template <class Scores, class Probs>
  CUTE_DEVICE static void pack(const Scores& scores, Probs& probs) {
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i) probs(i) = T(scores(i));
  }
};

}  // namespace nsa::device::sm90
