// What the kernel for whole tiles under masks is made of (selected_dense.cuh): its shared memory,
// the tiles of a CTA, rows, values that are not finite.
#pragma once
#include <cute/arch/copy_sm90_tma.hpp>

#include "nsa/device/interval/sm90/range_tiles.cuh"
#include "nsa/device/selected/sm90/selected_dense_launch.h"
#include "nsa/device/selected/sm90/selected_tiles.cuh"

namespace nsa::device::sm90 {

struct DenseArguments {
  CUtensorMap q_map, k_map, v_map;
  Strided v;  // for values that are not finite
  const int2* ranges;
  void* out;
  float* lse;
  DenseQueries queries;
  int num_queries, num_keys, num_kv_heads, group_size, num_ranges, first_position;
  int tokens_of_tile, tiles_of_lane, units;  // units: tiles of rows of all lanes
  bool streamed;                             // parts come through the places of keys and values
  float scale_log2;
};

template <int DK, int DV, typename T>
struct SelectedDenseTiles {
  using Cuda = typename ElementTraits<T>::Cuda;
  static constexpr int kRows = 64, kThreads = 256, kComputing = 128;
  static constexpr int kCtas = 2;  // of an SM: one reads parts while the other computes
  // Of the 256 x 128 registers a launch gives.
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 216;
  static constexpr int kStages = 2;
  using MmaScores =
      decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, _64, _64>>()));
  using MmaOut = decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<DV>, _64>,
                                                              GMMA::Major::K, GMMA::Major::MN>()));

  /// What a tile of rows needs to know of a token, made while the tile before it is computed.
  struct alignas(16) TokenWord {
    uint64_t tiles;  // bits
    int limit;       // keys that its position shows; 0: no token
    int16_t count;   // of its parts; below 0: it has more tiles than promised
    int16_t ragged;  // it has a range that is not made of tiles
  };
  struct Words {
    TokenWord of[kRows];
    uint64_t all;  // tiles of any token
    int most;      // parts of any token
  };
  struct Shared {
    alignas(1024) T q[kRows * DK];  // rows of the output at the end
    alignas(1024) T k[kStages][64 * DK];
    alignas(1024) T v[kStages][64 * DV];
    alignas(16) float2 stats[kStages][2 * kRows];  // of the parts in the places of a stage
    alignas(16) Words words[2];
    uint64_t bad[kStages];  // keys of a stage with a value that is not finite
    int bit[kStages];       // of a stage's tile
    uint32_t redo;          // bits of the CTA's tiles with an output that is not finite
    alignas(8) uint64_t q_full, q_empty, words_full[2], words_empty[2], finished;
    uint64_t k_full[kStages], v_full[kStages], k_empty[kStages], v_empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;
  static_assert(kCtas * (kSharedBytes + 1024) <= 233472);

  /// The tokens of a tile of rows. A token's tiles are the bits of a word: bit 0 is tile 0, bit i
  /// the tile base + i - 1.
  struct Tile {
    int first, count, batch, kv_head, base;
    int lane;  // of the launch

    CUTE_DEVICE int of_bit(int bit) const { return bit == 0 ? 0 : base + bit - 1; }
  };
  CUTE_DEVICE static Tile tile_of(const DenseArguments& a, int unit) {
    // The last tokens attend the most keys: they come first, those of all lanes.
    const int index = unit / a.queries.lanes, lane_of_launch = unit - index * a.queries.lanes;
    const int place = (a.tiles_of_lane - 1 - index) * a.tokens_of_tile;
    const int lane = a.queries.lane + lane_of_launch, first = a.queries.first + place;
    return {first,
            min(a.tokens_of_tile, a.queries.count - place),
            lane / a.num_kv_heads,
            lane % a.num_kv_heads,
            first_newest_tile(a, first),
            lane_of_launch};
  }
  /// The first tile behind tile 0 that is computed here for a token.
  CUTE_DEVICE static int first_newest_tile(const DenseArguments& a, int token) {
    return a.queries.parts.parts == nullptr ? 1
                                            : max(first_dense_tile(a.first_position + token), 1);
  }
  /// Row of [B, S, Hkv] when a sequence has `tokens_of_batch` tokens; `token` of the tile of rows.
  CUTE_DEVICE static int64_t token_row(const DenseArguments& a, const Tile& tile, int token,
                                       int64_t tokens_of_batch) {
    return (tile.batch * tokens_of_batch + tile.first + token) * a.num_kv_heads + tile.kv_head;
  }
  /// Row of the first part of a token's first head.
  CUTE_DEVICE static uint32_t first_part(const DenseArguments& a, const Tile& tile, int token) {
    const DenseParts& from = a.queries.parts;
    return (tile.lane * from.tokens_of_set + tile.first - a.queries.first + token) *
           from.max_tiles * a.group_size;
  }
  /// Keys that the position of a token shows.
  CUTE_DEVICE static int limit_of(const DenseArguments& a, int token) {
    return min(a.first_position + token + 1, a.num_keys);
  }

  /// The CTA's tiles of rows, to and fro, as the first ones are the longest; then those once more
  /// that have an output that is not finite (every 32nd one shares a bit), `clean`: with zeros for
  /// such values. All warps take the same turns.
  struct Turns {
    int turn = -1, round = -1;
    bool clean = false;

    template <bool kComputes>
    CUTE_DEVICE bool next(const DenseArguments& a, Shared& s) {
      ++turn;
      while (true) {
        ++round;
        if (unit() < a.units) {
          if (!clean || (s.redo >> round % 32 & 1) != 0) return true;
        } else {
          if (clean) return false;
          if (kComputes) arrive_at(s.finished);
          wait_for(s.finished, 0);
          if (s.redo == 0) return false;
          clean = true, round = -1;
        }
      }
    }
    CUTE_DEVICE int unit() const {
      const auto place = round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
      return round * static_cast<int>(gridDim.x) + static_cast<int>(place);
    }
    /// Found anew where it is asked for: that takes fewer registers.
    CUTE_DEVICE Tile tile(const DenseArguments& a) const {
      Turns same = *this;
      asm volatile("" : "+r"(same.round));
      return tile_of(a, same.unit());
    }
    CUTE_DEVICE int words() const { return turn % 2; }
    CUTE_DEVICE uint32_t words_phase() const { return turn / 2 & 1; }
  };

  /// Where the walk over the stages stands, and over the tiles of keys of a tile of rows.
  struct Walk {
    uint64_t left = 0;
    int bit = 0, stage = kStages - 1;
    uint32_t phase = 1;

    CUTE_DEVICE void next_stage() {
      if (++stage == kStages) stage = 0, phase ^= 1;
    }
    CUTE_DEVICE bool next() {
      if (left == 0) return false;
      bit = __ffsll(static_cast<long long>(left)) - 1;
      left &= left - 1;
      next_stage();
      return true;
    }
  };

  /// 16-byte piece `piece` of row `row` in the rows of Q, or of the output.
  CUTE_DEVICE static T* piece_of_row(Shared& s, int row, int piece) {
    return s.q + piece / 8 * (kRows * 64) + row * 64 + (piece % 8 ^ row % 8) * 8;
  }

  /// A warp's 16 rows of Q as operand A.
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
    for (int i = threadIdx.x - 128; i < 64 * DV / 8; i += kComputing) {
      T* piece = s.v[at.stage] + piece_of_tile(i % 64, i / 64);
      if (!not_finite<T>(*reinterpret_cast<const uint4*>(piece))) continue;
      atomicOr(reinterpret_cast<unsigned long long*>(&s.bad[at.stage]), 1ull << i % 64);
      for (int j = 0; j < 8; ++j)
        if (!isfinite(float(piece[j]))) piece[j] = T(0.f);
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kComputing, 1);
  }

  /// The two rows of a thread of the computing warpgroup. Words are read again wherever they are
  /// asked for: that takes fewer registers.
  struct Rows {
    int place[2];  // in the words of both buffers
    int base;      // of the tile

    CUTE_DEVICE Rows(const DenseArguments& a, const Turns& at) : base(at.tile(a).base) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        place[r] = at.words() * int(sizeof(Words) / sizeof(TokenWord)) + token(a, r);
    }
    /// Of the tile's rows.
    CUTE_DEVICE static int row(int r) {
      return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * r;
    }
    CUTE_DEVICE static int token(const DenseArguments& a, int r) { return row(r) / a.group_size; }
    CUTE_DEVICE const TokenWord& word(const Shared& s, int r) const {
      return reinterpret_cast<const TokenWord*>(s.words)[place[r]];
    }
    /// How many keys of a tile a row attends: the first ones.
    CUTE_DEVICE void columns(const Shared& s, int bit, int (&count)[2]) const {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        count[r] = word(s, r).tiles >> bit & 1
                       ? word(s, r).limit - (bit == 0 ? 0 : base + bit - 1) * 64
                       : 0;
    }
  };

  /// Adds to a thread's two rows what clear_bad_values took from a tile.
  template <class Out>
  CUTE_DEVICE static void add_bad_values(const DenseArguments& a, const Shared& s, const Turns& at,
                                         const Rows& rows, int stage, Out& out) {
    const int bit = s.bit[stage];
    uint64_t bad = s.bad[stage];
    const Tile tile = at.tile(a);
    int columns[2];
    rows.columns(s, bit, columns);
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
};

}  // namespace nsa::device::sm90
