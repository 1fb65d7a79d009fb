// What the kernel for whole tiles under masks is made of (selected_dense.cuh): its shared memory,
// the tiles of a CTA, rows.
#pragma once
#include "nsa/kernels/selected/sm90/masked_tiles.cuh"

namespace nsa::kernels::sm90 {

struct DenseArguments {
  CUtensorMap q_map, k_map, v_map;
  Strided v;  // for values that are not finite
  const int2* ranges;
  void* out;
  float* lse;
  DenseQueries queries;
  int num_queries, num_keys, num_kv_heads, group_size, num_ranges, first_position;
  int tokens_of_tile, tiles_of_head, units;  // units: tiles of rows of all heads
  bool streamed;                             // parts come through the places of keys and values
  float scale_log2;
};

template <int DK, int DV, typename T>
struct SelectedDenseTiles : MaskedTiles<DK, DV, T, 64, 2, 128> {
  using Base = MaskedTiles<DK, DV, T, 64, 2, 128>;
  using Base::kRows;
  using Base::kStages;
  using typename Base::Tile;
  static constexpr int kThreads = 256;
  static constexpr int kCtas = 2;  // of an SM: one reads parts while the other computes
  // Of the 256 x 128 registers a launch gives.
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 216;

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

  CUTE_DEVICE static Tile tile_of(const DenseArguments& a, int unit) {
    // The last tokens attend the most keys: they come first, those of all heads.
    const int index = unit / a.queries.heads, head_of_launch = unit - index * a.queries.heads;
    const int place = (a.tiles_of_head - 1 - index) * a.tokens_of_tile;
    return Base::tile_at(a, place, head_of_launch);
  }

  /// The CTA's tiles of rows, to and fro, as the first ones are the longest; then those once more
  /// that have an output that is not finite (every 32nd one shares a bit), `clean`: with zeros for
  /// such values. All warps take the same slots.
  struct WorkQueue {
    int slot = -1, round = -1;
    bool clean = false;

    template <bool kComputes>
    CUTE_DEVICE bool next(const DenseArguments& a, Shared& s) {
      ++slot;
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
      WorkQueue same = *this;
      asm volatile("" : "+r"(same.round));
      return tile_of(a, same.unit());
    }
    CUTE_DEVICE int words() const { return slot % 2; }
    CUTE_DEVICE uint32_t words_phase() const { return slot / 2 & 1; }
  };

  /// The two rows of a thread of the computing warpgroup. Words are read again wherever they are
  /// asked for: that takes fewer registers.
  struct Rows {
    int place[2];  // in the words of both buffers
    int base;      // of the tile

    CUTE_DEVICE Rows(const DenseArguments& a, const WorkQueue& at) : base(at.tile(a).base) {
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
};

}  // namespace nsa::kernels::sm90
