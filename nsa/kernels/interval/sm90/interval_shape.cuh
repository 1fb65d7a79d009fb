// Interval attention, forward: what a CTA is. Its types and shared memory, its tiles and their
// steps.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cutlass/arch/barrier.h>
#include <cutlass/numeric_types.h>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "nsa/kernels/interval/interval_attention.h"
#include "nsa/kernels/interval/interval_bounds.h"
#include "nsa/kernels/interval/sm90/block_candidates.cuh"
#include "nsa/kernels/interval/sm90/interval_arguments.h"
#include "nsa/kernels/interval/sm90/interval_attention_launch.h"
#include "nsa/kernels/interval/sm90/product_of_112.cuh"

namespace nsa::kernels::sm90 {

using namespace cute;

constexpr float kLog2e = 1.4426950408889634f;

/// Named barriers of the warpgroups that compute.
enum IntervalBarrier { kPlacesFree = 0, kTilesStored = 1, kRepair = 2, kScheduler = 3 };

/// The warpgroups enqueue their products in alternation, so that one has the tensor cores while the
/// others work on their scores. The first one begins, all take part equally often.
template <int kWarpgroups>
struct WarpgroupScheduler {
  CUTE_DEVICE explicit WarpgroupScheduler(int warpgroup) : warpgroup(warpgroup) {
    if (warpgroup == kWarpgroups - 1) pass();
  }
  CUTE_DEVICE void await() const { cutlass::arch::NamedBarrier::sync(256, kScheduler + warpgroup); }
  CUTE_DEVICE void pass() const {
    const int next = warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1;
    cutlass::arch::NamedBarrier::arrive(256, kScheduler + next);
  }
  /// Takes the last permission, which no warpgroup waits for at the end.
  CUTE_DEVICE void end() const {
    if (warpgroup == 0) await();
  }
  int warpgroup;
};

/// The tiles of 64 keys that a token attends; whether a range is not made of such.
struct TokenWords {
  uint32_t halves[2], ragged;
};

/// Types, shared memory and tiles that all parts of a CTA share.
template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalShape {
  using Element = T;
  static constexpr int kWarpgroups = warpgroups_of(DK);  // that compute
  static constexpr int kRows = 64 * kWarpgroups, kConsumers = 128 * kWarpgroups;
  static constexpr int kThreads = 128 + kConsumers;
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;
  static constexpr bool kWords = !kSelect && BN == 128;  // takes ranges of tiles
  static constexpr int kStages = DK == 64 ? 4 : 2;
  using Scheduler = WarpgroupScheduler<kWarpgroups>;
  using LayoutQ =
      decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<kRows>, Int<DK>>{}));
  using LayoutK =
      decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<BN>, Int<DK>>{}));
  // V is stored as it lies in memory, keys x columns; the product needs columns x keys.
  using LayoutV = decltype(tile_to_shape(GMMA::Layout_MN_SW128_Atom<T>{}, Shape<Int<DV>, Int<BN>>{},
                                         Step<_2, _1>{}));
  using MmaScores = decltype(make_tiled_mma(product_of_columns<T, BN>()));
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
    int shift;      // token t stands at position shift + t
    int first_key;  // where the keys of its document begin
  };
  CUTE_DEVICE static Tile tile_of(const IntervalArguments& a, int unit) {
    Tile tile;
    const int index = a.by_all_heads.quotient(unit), head_index = a.by_all_heads.remainder(unit);
    tile.batch = a.by_kv_heads.quotient(head_index);
    tile.kv_head = head_index - tile.batch * static_cast<int>(a.by_kv_heads.value);
    if (a.documents != nullptr) {
      const DocumentTile own = a.documents[index];
      tile.first = own.first, tile.count = own.count;
      tile.shift = -own.start, tile.first_key = own.first_key;
    } else {
      // The last tokens attend the most keys: they come first, those of all KV heads.
      tile.first = (a.tiles - 1 - index) * a.tokens_per_tile;
      tile.count = min(a.tokens_per_tile, a.num_queries - tile.first);
      tile.shift = a.first_position, tile.first_key = 0;
    }
    tile.begin = keys_at(a, tile.shift + tile.first).begin;
    const int last = tile.shift + tile.first + tile.count - 1;  // -1 without tokens
    const int end = keys_at(a, last).end;
    tile.steps = max(0, (end - tile.begin + BN - 1) / BN);
    tile.select_steps = 0;
    if constexpr (kSelect) {
      const BlockSelection& choice = a.selection;
      const int current = a.by_sel_block.quotient(max(last, 0));
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

  /// The CTA's tile `index`, found anew wherever it is asked for: that takes fewer registers.
  CUTE_DEVICE static Tile tile_again(const IntervalArguments& a, int index) {
    asm volatile("" : "+r"(index));
    return tile_of(a, unit_of(index));
  }

  CUTE_DEVICE static void wait(uint64_t& barrier, uint32_t phase) {
    cutlass::arch::ClusterTransactionBarrier::wait(&barrier, phase);
  }
  CUTE_DEVICE static void arrive(uint64_t& barrier) {
    cutlass::arch::ClusterBarrier::arrive(&barrier);
  }
};

}  // namespace nsa::kernels::sm90
