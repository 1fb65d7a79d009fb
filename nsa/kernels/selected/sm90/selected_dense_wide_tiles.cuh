// What the kernel for whole tiles at head dims of 64 (selected_dense_wide.cuh) is made of: its
// shared memory, the tokens of a CTA, their tiles as words, loads, rows.
#pragma once
#include "nsa/kernels/selected/sm90/masked_tiles.cuh"

namespace nsa::kernels::sm90 {

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
struct SelectedDenseWideTiles : MaskedTiles<DK, DV, T, 192, 8, 384> {
  using Base = MaskedTiles<DK, DV, T, 192, 8, 384>;
  using Base::kRows;
  using Base::kStages;
  using typename Base::Tile;
  using typename Base::Walk;
  static_assert(DK == 64);
  static constexpr int kWarpgroups = 3;  // that compute
  static constexpr int kThreads = 128 * (1 + kWarpgroups);
  static_assert(kRows == 64 * kWarpgroups && Base::kComputing == 128 * kWarpgroups);
  static constexpr int kProducerRegisters = 32;
  static constexpr int kConsumerRegisters = 160;

  struct Shared {
    alignas(1024) T q[kRows * DK];  // rows of the output at the end
    alignas(1024) T k[kStages][64 * DK];
    alignas(1024) T v[kStages][64 * DV];
    alignas(16) uint64_t tiles[kRows];  // of a token
    uint64_t all;                       // of any token
    uint64_t bad[kStages];              // keys of a stage with a value that is not finite
    int ragged[kRows];                  // a token has a range that is not made of tiles
    int redo;                           // an output is not finite
    alignas(8) uint64_t stored, parts_read, cleared, q_full, k_full[kStages], v_full[kStages],
        k_empty[kStages], v_empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;
  static_assert(kSharedBytes <= 232448);

  CUTE_DEVICE static Tile tile_of(const DenseWideArguments& a, int block, int head_of_launch) {
    // The last tokens attend the most keys: they start first.
    const int place = (static_cast<int>(gridDim.x) - 1 - block) * a.tokens_of_tile;
    return Base::tile_at(a, place, head_of_launch);
  }

  /// Ranges -> bits, by all threads.
  CUTE_DEVICE static void read_ranges(const DenseWideArguments& a, Shared& s, const Tile& tile) {
    for (int i = threadIdx.x; i < tile.count * a.num_ranges; i += kThreads) {
      const int token = i / a.num_ranges, limit = Base::limit_of(a, tile.first + token);
      const int2 range =
          a.ranges[Base::token_row(a, tile, token, a.queries.tokens_of_batch) * a.num_ranges +
                   i % a.num_ranges];
      const RangeTiles tiles(range, limit);
      const uint64_t bits = tiles.bits(Base::first_newest_tile(a, tile.first + token), tile.base);
      Base::add_bits(s.tiles[token], bits);
      Base::add_bits(s.all, bits);
      if (!tiles.whole) s.ragged[token] = 1;
    }
  }

  /// One thread: K and V of every tile as places become free.
  CUTE_DEVICE static void produce(const DenseWideArguments& a, Shared& s, const Tile& tile,
                                  Walk& walk) {
    for (walk.left = s.all; walk.next();) {
      wait_for(s.k_empty[walk.stage], walk.phase ^ 1);
      Base::template load_tile<DK>(a.k_map, s.k_full[walk.stage], s.k[walk.stage], tile, walk.bit);
      wait_for(s.v_empty[walk.stage], walk.phase ^ 1);
      s.bad[walk.stage] = 0;
      Base::template load_tile<DV>(a.v_map, s.v_full[walk.stage], s.v[walk.stage], tile, walk.bit);
    }
  }

  /// One warp has first parts brought to the L2 cache: those of the CTA that probably follows on
  /// this SM, once this one has read its own, so that memory is busy while this one computes. All
  /// of them, for all SMs, would not stay there.
  CUTE_DEVICE static void prefetch_parts(const DenseWideArguments& a, Shared& s, const Tile& tile) {
    const int block = static_cast<int>(blockIdx.y * gridDim.x + blockIdx.x);
    if (block < a.sms) prefetch_parts_of(a, tile);
    const int next = block + a.sms, head_index = next / static_cast<int>(gridDim.x);
    if (head_index >= static_cast<int>(gridDim.y)) return;
    const Tile follows = tile_of(a, next % static_cast<int>(gridDim.x), head_index);
    wait_for(s.parts_read, 0);
    prefetch_parts_of(a, follows);
  }
  CUTE_DEVICE static void prefetch_parts_of(const DenseWideArguments& a, const Tile& tile) {
    const DenseParts& from = a.queries.parts;
    const int32_t* counts = from.row_counts + Base::token_row(a, tile, 0, a.num_queries);
#pragma unroll 1
    for (int token = threadIdx.x % 32; token < tile.count; token += 32) {
      const int count = min(counts[token * a.num_kv_heads], 6);
      Base::prefetch_parts_of_token(a, tile, token, count);
    }
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
        limit[r] = used ? Base::limit_of(a, tile.first + token) : 0;
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

}  // namespace nsa::kernels::sm90
