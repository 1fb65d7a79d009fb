// What the kernel for whole tiles at head dims of 64 (selected_dense_wide.cuh) is made of: the
// tokens of a CTA, their tiles as words, shared memory, loads, values that are not finite.
#pragma once
#include <cute/arch/copy_sm90_tma.hpp>

#include "nsa/device/interval/sm90/range_tiles.cuh"
#include "nsa/device/selected/sm90/selected_dense_launch.h"
#include "nsa/device/selected/sm90/selected_tiles.cuh"

namespace nsa::device::sm90 {

struct DenseWideArguments {
  CUtensorMap q_map, k_map, v_map;
  Strided v;  // for values that are not finite
  const int2* ranges;
  void* out;
  float* lse;
  DenseQueries queries;
  int num_queries, num_keys, num_kv_heads, group_size, num_ranges, first_position;
  int tokens_of_tile, sms;
  float scale_log2;
};

template <int DK, int DV, typename T>
struct SelectedDenseWideTiles {
  using Cuda = typename ElementTraits<T>::Cuda;
  static_assert(DK == 64);
  static constexpr int kWarpgroups = 3;  // that compute
  static constexpr int kRows = 64 * kWarpgroups, kThreads = 128 * (1 + kWarpgroups);
  static constexpr int kProducerRegisters = 32;
  static constexpr int kConsumerRegisters = 160;
  static constexpr int kStages = 8;
  using MmaScores =
      decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, _64, _64>>()));
  using MmaOut = decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<DV>, _64>,
                                                              GMMA::Major::K, GMMA::Major::MN>()));

  struct Shared {
    alignas(1024) T q[kRows * DK];  // rows of the output at the end
    alignas(1024) T k[kStages][64 * DK];
    alignas(1024) T v[kStages][64 * DV];
    alignas(16) uint64_t tiles[kRows];  // of a token
    uint64_t all;                       // of any token
    uint64_t bad[kStages];              // keys of a stage with a value that is not finite
    int ragged[kRows];                  // a token has a range that is not made of tiles
    int redo;                           // an output is not finite
    alignas(8) uint64_t stored,
        parts_read, q_full, k_full[kStages], v_full[kStages], k_empty[kStages], v_empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;
  static_assert(kSharedBytes <= 232448);

  /// The tokens of a CTA. A token's tiles are the bits of a word: bit 0 is tile 0, bit i the tile
  /// base + i - 1.
  struct Tile {
    int first, count, batch, kv_head, base;
    int lane;  // of the launch

    CUTE_DEVICE int of_bit(int bit) const { return bit == 0 ? 0 : base + bit - 1; }
  };
  CUTE_DEVICE static Tile tile_of(const DenseWideArguments& a, int block, int lane_of_launch) {
    // The last tokens attend the most keys: they start first.
    const int place = (static_cast<int>(gridDim.x) - 1 - block) * a.tokens_of_tile;
    const int lane = a.queries.lane + lane_of_launch, first = a.queries.first + place;
    return {first,
            min(a.tokens_of_tile, a.queries.count - place),
            lane / a.num_kv_heads,
            lane % a.num_kv_heads,
            first_newest_tile(a, first),
            lane_of_launch};
  }
  /// The first tile behind tile 0 that is computed here for a token.
  CUTE_DEVICE static int first_newest_tile(const DenseWideArguments& a, int token) {
    return a.queries.parts.parts == nullptr ? 1
                                            : max(first_dense_tile(a.first_position + token), 1);
  }
  /// Row of [B, S, Hkv] when a sequence has `tokens_of_batch` tokens; `token` of the CTA.
  CUTE_DEVICE static int64_t token_row(const DenseWideArguments& a, const Tile& tile, int token,
                                       int64_t tokens_of_batch) {
    return (tile.batch * tokens_of_batch + tile.first + token) * a.num_kv_heads + tile.kv_head;
  }
  /// Keys that the position of a token shows.
  CUTE_DEVICE static int limit_of(const DenseWideArguments& a, int token) {
    return min(a.first_position + token + 1, a.num_keys);
  }

  /// Ranges -> bits, by all threads.
  CUTE_DEVICE static void read_ranges(const DenseWideArguments& a, Shared& s, const Tile& tile) {
    const auto set = [](uint64_t& word, uint64_t bits) {
      uint32_t* halves = reinterpret_cast<uint32_t*>(&word);
      if (uint32_t(bits) != 0) atomicOr(halves, uint32_t(bits));
      if (bits >> 32 != 0) atomicOr(halves + 1, uint32_t(bits >> 32));
    };
    for (int i = threadIdx.x; i < tile.count * a.num_ranges; i += kThreads) {
      const int token = i / a.num_ranges, limit = limit_of(a, tile.first + token);
      const int2 range =
          a.ranges[token_row(a, tile, token, a.queries.tokens_of_batch) * a.num_ranges +
                   i % a.num_ranges];
      const RangeTiles tiles(range, limit);
      const uint64_t bits = tiles.bits(first_newest_tile(a, tile.first + token), tile.base);
      set(s.tiles[token], bits);
      set(s.all, bits);
      if (!tiles.whole) s.ragged[token] = 1;
    }
  }

  CUTE_DEVICE static void load_q(const DenseWideArguments& a, Shared& s, const Tile& tile) {
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const auto once = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST);
    Full::arrive_and_expect_tx(&s.q_full, a.tokens_of_tile * a.group_size * DK * sizeof(T));
    for (int c = 0; c < DK; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.q_map, &s.q_full, once, s.q + c * kRows, c,
                             tile.kv_head * a.group_size, tile.first, tile.batch);
  }
  template <int kColumns>
  CUTE_DEVICE static void load_tile(const CUtensorMap& map, uint64_t& full, T* to, const Tile& tile,
                                    int bit) {
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const auto keep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);
    Full::arrive_and_expect_tx(&full, 64 * kColumns * sizeof(T));
    for (int c = 0; c < kColumns; c += 64)
      SM90_TMA_LOAD_4D::copy(&map, &full, keep, to + c * 64, c, tile.kv_head, tile.of_bit(bit) * 64,
                             tile.batch);
  }

  /// Where the walk over the tiles stands; it goes on where it ended when they are computed again.
  struct Walk {
    uint64_t left = 0;
    int bit = 0, stage = kStages - 1;
    uint32_t phase = 1;

    CUTE_DEVICE bool next() {
      if (left == 0) return false;
      bit = __ffsll(static_cast<long long>(left)) - 1;
      left &= left - 1;
      if (++stage == kStages) stage = 0, phase ^= 1;
      return true;
    }
  };

  /// One thread: K and V of every tile as places become free.
  CUTE_DEVICE static void produce(const DenseWideArguments& a, Shared& s, const Tile& tile,
                                  Walk& walk) {
    for (walk.left = s.all; walk.next();) {
      wait_for(s.k_empty[walk.stage], walk.phase ^ 1);
      load_tile<DK>(a.k_map, s.k_full[walk.stage], s.k[walk.stage], tile, walk.bit);
      wait_for(s.v_empty[walk.stage], walk.phase ^ 1);
      s.bad[walk.stage] = 0;
      load_tile<DV>(a.v_map, s.v_full[walk.stage], s.v[walk.stage], tile, walk.bit);
    }
  }

  /// One warp has first parts brought to the L2 cache: those of the CTA that probably follows on
  /// this SM, once this one has read its own, so that memory is busy while this one computes. All
  /// of them, for all SMs, would not stay there.
  CUTE_DEVICE static void prefetch_parts(const DenseWideArguments& a, Shared& s, const Tile& tile) {
    const int block = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
    if (block < a.sms) prefetch_parts_of(a, tile);
    const int next = block + a.sms, lane = next / static_cast<int>(gridDim.x);
    if (lane >= static_cast<int>(gridDim.y)) return;
    const Tile follows = tile_of(a, next % static_cast<int>(gridDim.x), lane);
    wait_for(s.parts_read, 0);
    prefetch_parts_of(a, follows);
  }
  CUTE_DEVICE static void prefetch_parts_of(const DenseWideArguments& a, const Tile& tile) {
    const DenseParts& from = a.queries.parts;
    const int32_t* counts = from.row_counts + token_row(a, tile, 0, a.num_queries);
#pragma unroll 1
    for (int token = threadIdx.x % 32; token < tile.count; token += 32) {
      const int count = min(counts[token * a.num_kv_heads], 6);
      const uint32_t first = first_part(a, tile, token), begin = first / 8,
                     blocks = (first + count * a.group_size + 7) / 8 - begin;
      if (count > 0)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(
                         static_cast<const T*>(from.parts) + int64_t(begin) * 8 * DV),
                     "r"(blocks * uint32_t(8 * DV * sizeof(T))));
    }
  }
  /// Row of the first part of a token's first head.
  CUTE_DEVICE static uint32_t first_part(const DenseWideArguments& a, const Tile& tile, int token) {
    const DenseParts& from = a.queries.parts;
    return (tile.lane * from.tokens_of_set + tile.first - a.queries.first + token) *
           from.max_tiles * a.group_size;
  }

  /// 16-byte piece `piece` of row `row` in the rows of Q, or of the output.
  CUTE_DEVICE static T* piece_of_row(Shared& s, int row, int piece) {
    return s.q + piece / 8 * (kRows * 64) + row * 64 + (piece % 8 ^ row % 8) * 8;
  }

  /// A warpgroup's 64 rows of Q as operand A.
  template <class Fragment>
  CUTE_DEVICE static void read_q(Shared& s, int first_row, Fragment& q) {
    const int lane = threadIdx.x % 32;
    Tensor bits = recast<uint32_t>(q);
    CUTE_UNROLL
    for (int k = 0; k < DK / 16; ++k) {
      uint32_t four[4];
      sm80::load_matrices(
          four, sm80::shared_address(piece_of_row(s, first_row + lane % 16, k * 2 + lane / 16)));
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) bits(k * 4 + i) = four[i];
    }
  }

  /// Zeros in the place of values that are not finite; their keys' bits go to bad. By all
  /// computing threads, tile after tile.
  CUTE_DEVICE static void clear_bad_values(Shared& s, const Walk& at) {
    wait_for(s.v_full[at.stage], at.phase);
    for (int i = threadIdx.x - 128; i < 64 * DV / 8; i += 128 * kWarpgroups) {
      T* piece = s.v[at.stage] + piece_of_tile(i % 64, i / 64);
      if (!not_finite<T>(*reinterpret_cast<const uint4*>(piece))) continue;
      atomicOr(reinterpret_cast<unsigned long long*>(&s.bad[at.stage]), 1ull << i % 64);
      for (int j = 0; j < 8; ++j)
        if (!isfinite(float(piece[j]))) piece[j] = T(0.f);
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(128 * kWarpgroups, 1);
  }

  /// The two rows of a thread of a computing warpgroup.
  struct Rows {
    int row[2], limit[2];  // of the CTA's rows; keys that the position shows, 0: no row
    uint64_t tiles[2];

    CUTE_DEVICE Rows(const DenseWideArguments& a, const Shared& s, const Tile& tile,
                     int warpgroup) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        row[r] = warpgroup * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * r;
        const int token = row[r] / a.group_size;
        const bool used = token < tile.count;
        limit[r] = used ? limit_of(a, tile.first + token) : 0;
        tiles[r] = used ? s.tiles[token] : 0;
      }
    }
    /// How many keys of a tile a row attends: the first ones.
    CUTE_DEVICE void columns(const Tile& tile, int bit, int (&count)[2]) const {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        count[r] = tiles[r] >> bit & 1 ? limit[r] - tile.of_bit(bit) * 64 : 0;
    }
  };

  /// Adds to a thread's two rows what clear_bad_values took from a tile.
  template <class Out>
  CUTE_DEVICE static void add_bad_values(const DenseWideArguments& a, const Tile& tile,
                                         const Rows& rows, uint64_t bad, int bit, Out& out) {
    int columns[2];
    rows.columns(tile, bit, columns);
    const T* v = static_cast<const T*>(a.v.data) + tile.batch * a.v.batch + tile.kv_head * a.v.head;
    for (; bad != 0; bad &= bad - 1) {
      const int key = __ffsll(static_cast<long long>(bad)) - 1;
      const T* row = v + (int64_t(tile.of_bit(bit)) * 64 + key) * a.v.token;
      CUTE_UNROLL
      for (int i = 0; i < size(out); ++i) {
        const float value = float(row[i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2]);
        if (!isfinite(value) && key < columns[i / 2 % 2]) out(i) += value;
      }
    }
  }

  /// Tiles that any row of a warpgroup attends.
  CUTE_DEVICE static uint64_t tiles_of_warpgroup(const DenseWideArguments& a, const Shared& s,
                                                 const Tile& tile, int warpgroup) {
    const int first = warpgroup * 64 / a.group_size,
              last = min((warpgroup * 64 + 63) / a.group_size, tile.count - 1);
    uint64_t any = 0;
    for (int token = first + threadIdx.x % 32; token <= last; token += 32) any |= s.tiles[token];
    return uint64_t(__reduce_or_sync(~0u, uint32_t(any >> 32))) << 32 |
           __reduce_or_sync(~0u, uint32_t(any));
  }
};

}  // namespace nsa::device::sm90
