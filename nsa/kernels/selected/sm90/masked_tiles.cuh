// Code that both kernels for whole tiles under masks (selected_dense.cuh, selected_dense_wide.cuh)
// share: tokens of a tile of rows, its tiles of keys, Q, K and V in shared memory, values that are
// not finite. `Arguments` are those of either kernel.
#pragma once
#include <cute/arch/copy_sm90_tma.hpp>

#include "nsa/kernels/common/sm90/tensor_map.h"
#include "nsa/kernels/interval/sm90/range_tiles.cuh"
#include "nsa/kernels/selected/sm90/selected_dense_launch.h"
#include "nsa/kernels/selected/sm90/selected_tiles.cuh"

namespace nsa::kernels::sm90 {

/// `kRowsOfTile` rows of Q in shared memory; `kPlaces` places for K and for V; `kThreadsComputing`
/// threads, those from 128 on.
template <int DK, int DV, typename T, int kRowsOfTile, int kPlaces, int kThreadsComputing>
struct MaskedTiles {
  using Cuda = typename ElementTraits<T>::Cuda;
  using Full = cutlass::arch::ClusterTransactionBarrier;
  static constexpr int kKeyDim = DK, kValueDim = DV;
  static constexpr int kRows = kRowsOfTile, kStages = kPlaces, kComputing = kThreadsComputing;
  using MmaScores =
      decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, _64, _64>>()));
  using MmaOut = decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<DV>, _64>,
                                                              GMMA::Major::K, GMMA::Major::MN>()));

  /// The tokens of a tile of rows. A token's tiles are the bits of a word: bit 0 is tile 0, bit i
  /// the tile base + i - 1.
  struct Tile {
    int first, count, batch, kv_head, base;
    int head;  // of the launch

    CUTE_DEVICE int of_bit(int bit) const { return bit == 0 ? 0 : base + bit - 1; }
  };
  /// The tile of rows that begins `place` tokens behind the launch's first.
  template <class Arguments>
  CUTE_DEVICE static Tile tile_at(const Arguments& a, int place, int head_of_launch) {
    const int head_index = a.queries.first_head + head_of_launch, first = a.queries.first + place;
    return {first,
            min(a.tokens_of_tile, a.queries.count - place),
            head_index / a.num_kv_heads,
            head_index % a.num_kv_heads,
            first_newest_tile(a, first),
            head_of_launch};
  }
  /// The first tile behind tile 0 that is computed here for a token.
  template <class Arguments>
  CUTE_DEVICE static int first_newest_tile(const Arguments& a, int token) {
    return a.queries.parts.parts == nullptr ? 1
                                            : max(first_dense_tile(a.first_position + token), 1);
  }
  /// Row of [B, S, Hkv] when a sequence has `tokens_of_batch` tokens; `token` of the tile of rows.
  template <class Arguments>
  CUTE_DEVICE static int64_t token_row(const Arguments& a, const Tile& tile, int token,
                                       int64_t tokens_of_batch) {
    return (tile.batch * tokens_of_batch + tile.first + token) * a.num_kv_heads + tile.kv_head;
  }
  /// Row of the first part of a token's first head.
  template <class Arguments>
  CUTE_DEVICE static uint32_t first_part(const Arguments& a, const Tile& tile, int token) {
    const DenseParts& from = a.queries.parts;
    return (tile.head * from.tokens_of_set + tile.first - a.queries.first + token) *
           from.max_tiles * a.group_size;
  }
  /// Keys that the position of a token shows.
  template <class Arguments>
  CUTE_DEVICE static int limit_of(const Arguments& a, int token) {
    return min(a.first_position + token + 1, a.num_keys);
  }
  /// Bits of a token, added to a word in shared memory by many threads.
  CUTE_DEVICE static void add_bits(uint64_t& word, uint64_t bits) {
    uint32_t* halves = reinterpret_cast<uint32_t*>(&word);
    if (uint32_t(bits) != 0) atomicOr(halves, uint32_t(bits));
    if (bits >> 32 != 0) atomicOr(halves + 1, uint32_t(bits >> 32));
  }

  /// Where the walk over the places of K and V stands, and over the tiles of keys of a tile of
  /// rows.
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

  template <class Arguments, class Shared>
  CUTE_DEVICE static void load_q(const Arguments& a, Shared& s, const Tile& tile) {
    const auto once = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST);
    Full::arrive_and_expect_tx(&s.q_full, a.tokens_of_tile * a.group_size * DK * sizeof(T));
    for (int c = 0; c < DK; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.q_map, &s.q_full, once, s.q + c * kRows, c,
                             tile.kv_head * a.group_size, tile.first, tile.batch);
  }
  template <int kColumns>
  CUTE_DEVICE static void load_tile(const CUtensorMap& map, uint64_t& full, T* to, const Tile& tile,
                                    int bit) {
    const auto keep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);
    Full::arrive_and_expect_tx(&full, 64 * kColumns * sizeof(T));
    for (int c = 0; c < kColumns; c += 64)
      SM90_TMA_LOAD_4D::copy(&map, &full, keep, to + c * 64, c, tile.kv_head, tile.of_bit(bit) * 64,
                             tile.batch);
  }

  /// The first `count` parts of a token are brought to the L2 cache.
  template <class Arguments>
  CUTE_DEVICE static void prefetch_parts_of_token(const Arguments& a, const Tile& tile, int token,
                                                  int count) {
    const uint32_t first = first_part(a, tile, token), begin = first / 8,
                   blocks = (first + count * a.group_size + 7) / 8 - begin;
    if (count > 0)
      prefetch_bulk(static_cast<const T*>(a.queries.parts.parts) + int64_t(begin) * 8 * DV,
                    blocks * uint32_t(8 * DV * sizeof(T)));
  }

  /// 16-byte piece `piece` of row `row` in the rows of Q, or of the output.
  template <class Shared>
  CUTE_DEVICE static T* piece_of_row(Shared& s, int row, int piece) {
    return s.q + piece / 8 * (kRows * 64) + row * 64 + (piece % 8 ^ row % 8) * 8;
  }
  /// A warp's 16 rows of Q, from `first_row` on, as operand A.
  template <class Shared, class Fragment>
  CUTE_DEVICE static void read_q(Shared& s, int first_row, Fragment& q) {
    const int lane = threadIdx.x % 32;
    Tensor bits = recast<uint32_t>(q);
    CUTE_UNROLL
    for (int k = 0; k < DK / 16; ++k) {
      uint32_t four[4];
      portable::load_matrices(four, portable::shared_address(
                                        piece_of_row(s, first_row + lane % 16, k * 2 + lane / 16)));
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) bits(k * 4 + i) = four[i];
    }
  }

  /// Zeros in the place of values that are not finite; their keys' bits go to bad. By all
  /// computing threads, tile after tile; the kernel has them meet behind it.
  template <class Shared>
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
  }
  /// What is kept for a stage, read by the lane that gives the stage back and handed to its warp.
  template <typename Word>
  CUTE_DEVICE static Word word_of_stage(const Word& word) {
    return __shfl_sync(~0u, threadIdx.x % 32 == 0 ? word : Word(0), 0);
  }
  /// Adds to a thread's two rows, which attend `columns` keys of the tile, what clear_bad_values
  /// took from it.
  template <class Arguments, class Out>
  CUTE_DEVICE static void add_bad_values(const Arguments& a, const Tile& tile, int bit,
                                         uint64_t bad, const int (&columns)[2], Out& out) {
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

/// Fills the arguments that launches of both kernels share, and their tensor maps.
template <class Kernel, class Arguments>
cudaError_t describe_masked_tiles(Arguments& a, const RowAttention& p,
                                  const DenseQueries& queries) {
  const int group = p.num_heads / p.num_kv_heads;
  a.v = p.v, a.ranges = reinterpret_cast<const int2*>(p.ranges), a.out = p.out, a.lse = p.lse;
  a.queries = queries;
  a.num_queries = p.num_queries, a.num_keys = p.num_keys, a.num_kv_heads = p.num_kv_heads;
  a.group_size = group, a.num_ranges = p.num_ranges, a.first_position = p.first_position;
  a.tokens_of_tile = Kernel::kRows / group;
  a.scale_log2 = p.scale * 1.4426950408889634f;
  const bool half = p.element == nsa::kernels::Element::kHalf;
  const auto map = [&](CUtensorMap& m, const Strided& x, int dim, int heads, int tokens,
                       int box_heads, int box_tokens) {
    return make_tensor_map(m, x.data, half, dim, heads, tokens, p.batch, x.head, x.token, x.batch,
                           box_heads, box_tokens);
  };
  constexpr int kKeyDim = Kernel::kKeyDim, kValueDim = Kernel::kValueDim;
  cudaError_t status =
      map(a.q_map, p.q, kKeyDim, p.num_heads, p.num_queries, group, a.tokens_of_tile);
  if (p.num_keys == 0) return status;  // nothing is loaded through the other maps
  if (status == cudaSuccess) status = map(a.k_map, p.k, kKeyDim, p.num_kv_heads, p.num_keys, 1, 64);
  if (status == cudaSuccess)
    status = map(a.v_map, p.v, kValueDim, p.num_kv_heads, p.num_keys, 1, 64);
  return status;
}

}  // namespace nsa::kernels::sm90
