// Selected attention, forward, for rows that attend most of the keys before them: whole causal
// tiles of 64 keys under masks, on wgmma and TMA.
//
// A row is a (token, head of the group) pair, row = token * G + head. A token's tiles are the bits
// of one 64-bit word, read from its ranges. Warpgroup 0 feeds the tiles that any row of the CTA
// attends; the others compute 64 rows each and pass over tiles that none of these attends. Within a
// step the products of the next tile and of this tile's V are in flight while the softmax runs.
//
// Masked values: a row's probability of a masked key is 0, but 0 * NaN is not. A CTA with an output
// that is not finite therefore computes its tiles once more in the same order, with zeros in the
// place of such values, and adds them to the rows that attend them. On finite inputs this never
// happens.
#pragma once
#include <cute/arch/copy_sm90_tma.hpp>

#include "nsa/device/sm90/online_softmax.cuh"
#include "nsa/device/sm90/range_tiles.cuh"
#include "nsa/device/sm90/selected_dense_launch.h"
#include "nsa/device/sm90/selected_tiles.cuh"
#include "nsa/device/sm90/tensor_map.h"

namespace nsa::device::sm90 {

struct DenseArguments {
  CUtensorMap q_map, k_map, v_map;
  Strided v;  // for values that are not finite
  const int2* ranges;
  void* out;
  float* lse;
  int num_queries, num_keys, num_heads, group_size, num_ranges, first_position;
  int64_t tokens_of_batch;
  int tokens_of_tile;
  float scale_log2;
};

template <int DK, int DV, typename T>
struct SelectedDenseKernel {
  using Cuda = typename ElementTraits<T>::Cuda;
  static constexpr int kWarpgroups = DK == 64 ? 3 : 2;  // that compute
  static constexpr int kRows = 64 * kWarpgroups, kThreads = 128 * (1 + kWarpgroups);
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kWarpgroups == 3 ? 160 : 232;
  static constexpr int kStages = DK == 64 ? 8 : DK == 128 ? 5 : 4;
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
    alignas(8) uint64_t q_full, k_full[kStages], v_full[kStages], k_empty[kStages],
        v_empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;
  static_assert(kSharedBytes <= 232448);

  /// The tokens of a CTA.
  struct Tile {
    int first, count;
  };
  CUTE_DEVICE static Tile tile_of(const DenseArguments& a) {
    // The last tokens attend the most keys: they start first.
    const int first = static_cast<int>(gridDim.x - 1 - blockIdx.x) * a.tokens_of_tile;
    return {first, min(a.tokens_of_tile, a.num_queries - first)};
  }
  /// Row of [B, S, Hkv].
  CUTE_DEVICE static int64_t token_row(const DenseArguments& a, int token) {
    return (int64_t(blockIdx.z) * a.tokens_of_batch + token) * gridDim.y + blockIdx.y;
  }
  /// Keys that the position of a token shows.
  CUTE_DEVICE static int limit_of(const DenseArguments& a, int token) {
    return min(a.first_position + token + 1, a.num_keys);
  }

  /// Ranges -> bits, by all threads.
  CUTE_DEVICE static void read_ranges(const DenseArguments& a, Shared& s, const Tile& tile) {
    const auto set = [](uint64_t& word, uint64_t bits) {
      uint32_t* halves = reinterpret_cast<uint32_t*>(&word);
      if (uint32_t(bits) != 0) atomicOr(halves, uint32_t(bits));
      if (bits >> 32 != 0) atomicOr(halves + 1, uint32_t(bits >> 32));
    };
    for (int i = threadIdx.x; i < tile.count * a.num_ranges; i += kThreads) {
      const int token = i / a.num_ranges, limit = limit_of(a, tile.first + token);
      const int2 range =
          a.ranges[token_row(a, tile.first + token) * a.num_ranges + i % a.num_ranges];
      const RangeTiles tiles(range, limit);
      set(s.tiles[token], tiles.bits);
      set(s.all, tiles.bits);
      if (!tiles.whole) s.ragged[token] = 1;
    }
  }

  CUTE_DEVICE static void load_q(const DenseArguments& a, Shared& s, const Tile& tile) {
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const auto once = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST);
    Full::arrive_and_expect_tx(&s.q_full, a.tokens_of_tile * a.group_size * DK * sizeof(T));
    for (int c = 0; c < DK; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.q_map, &s.q_full, once, s.q + c * kRows, c,
                             blockIdx.y * a.group_size, tile.first, blockIdx.z);
  }
  template <int kColumns>
  CUTE_DEVICE static void load_tile(const CUtensorMap& map, uint64_t& full, T* to, int tile) {
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const auto keep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);
    Full::arrive_and_expect_tx(&full, 64 * kColumns * sizeof(T));
    for (int c = 0; c < kColumns; c += 64)
      SM90_TMA_LOAD_4D::copy(&map, &full, keep, to + c * 64, c, blockIdx.y, tile * 64, blockIdx.z);
  }

  /// Where the walk over the tiles stands; it goes on where it ended when they are computed again.
  struct Walk {
    uint64_t left = 0;
    int tile = 0, stage = kStages - 1;
    uint32_t phase = 1;

    CUTE_DEVICE bool next() {
      if (left == 0) return false;
      tile = __ffsll(static_cast<long long>(left)) - 1;
      left &= left - 1;
      if (++stage == kStages) stage = 0, phase ^= 1;
      return true;
    }
  };

  /// One thread: K and V of every tile as places become free.
  CUTE_DEVICE static void produce(const DenseArguments& a, Shared& s, Walk& walk) {
    for (walk.left = s.all; walk.next();) {
      wait_for(s.k_empty[walk.stage], walk.phase ^ 1);
      load_tile<DK>(a.k_map, s.k_full[walk.stage], s.k[walk.stage], walk.tile);
      wait_for(s.v_empty[walk.stage], walk.phase ^ 1);
      s.bad[walk.stage] = 0;
      load_tile<DV>(a.v_map, s.v_full[walk.stage], s.v[walk.stage], walk.tile);
    }
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

  /// Adds to a thread's two rows what clear_bad_values took from a tile; columns[r]: attended keys.
  template <class Out>
  CUTE_DEVICE static void add_bad_values(const DenseArguments& a, uint64_t bad, int tile,
                                         const int (&columns)[2], Out& out) {
    const T* v = static_cast<const T*>(a.v.data) + blockIdx.z * a.v.batch + blockIdx.y * a.v.head;
    for (; bad != 0; bad &= bad - 1) {
      const int key = __ffsll(static_cast<long long>(bad)) - 1;
      const T* row = v + (int64_t(tile) * 64 + key) * a.v.token;
      CUTE_UNROLL
      for (int i = 0; i < size(out); ++i) {
        const float value = float(row[i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2]);
        if (!isfinite(value) && key < columns[i / 2 % 2]) out(i) += value;
      }
    }
  }

  /// The two rows of a thread of a computing warpgroup.
  struct Rows {
    int row[2], limit[2];  // of the CTA's rows; keys that the position shows, 0: no row
    uint64_t tiles[2];

    CUTE_DEVICE Rows(const DenseArguments& a, const Shared& s, const Tile& tile, int warpgroup) {
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
    CUTE_DEVICE void columns(int tile, int (&count)[2]) const {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) count[r] = tiles[r] >> tile & 1 ? limit[r] - tile * 64 : 0;
    }
  };

  /// Tiles that any row of a warpgroup attends.
  CUTE_DEVICE static uint64_t tiles_of_warpgroup(const DenseArguments& a, const Shared& s,
                                                 const Tile& tile, int warpgroup) {
    const int first = warpgroup * 64 / a.group_size,
              last = min((warpgroup * 64 + 63) / a.group_size, tile.count - 1);
    uint64_t any = 0;
    for (int token = first + threadIdx.x % 32; token <= last; token += 32) any |= s.tiles[token];
    return uint64_t(__reduce_or_sync(~0u, uint32_t(any >> 32))) << 32 |
           __reduce_or_sync(~0u, uint32_t(any));
  }

  /// Scores of one tile -> probabilities relative to the running maximum.
  template <class Scores>
  CUTE_DEVICE static void attend(const DenseArguments& a, const Rows& rows, int tile,
                                 OnlineSoftmax& softmax, Scores& scores) {
    int columns[2];
    rows.columns(tile, columns);
    if (!__any_sync(~0u, max(columns[0], columns[1]) > 0)) {  // the same bits, without the work
      clear(scores);
      softmax.rescale[0] = softmax.rescale[1] = 1.f;
      return;
    }
    if (!__all_sync(~0u, min(columns[0], columns[1]) >= 64)) {
      CUTE_UNROLL
      for (int i = 0; i < size(scores); ++i)
        if (i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 >= columns[i / 2 % 2]) scores(i) = -INFINITY;
    }
    softmax.step(scores, a.scale_log2);
  }

  /// One warpgroup: 64 rows. `clean`: with zeros for values that are not finite.
  template <class Q, class Out>
  CUTE_DEVICE static void pass(const DenseArguments& a, Shared& s, const Rows& rows, uint64_t own,
                               bool clean, const Q& frag_q, Walk& walk, OnlineSoftmax& softmax,
                               Out& out) {
    const int thread = threadIdx.x % 128, lane = threadIdx.x % 32;
    MmaScores mma_scores;
    MmaOut mma_out;
    auto scores_thread = mma_scores.get_thread_slice(thread);
    auto out_thread = mma_out.get_thread_slice(thread);
    Tensor scores = partition_fragment_C(mma_scores, Shape<_64, _64>{});
    // Probabilities as the A operand: the accumulators' order, packed in pairs.
    Tensor probs = make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, _4>>{});
    Tensor probs_bits = recast<uint32_t>(probs);

    const auto multiply_scores = [&] {
      wait_for(s.k_full[walk.stage], walk.phase);
      Tensor k = make_tensor(make_smem_ptr(s.k[walk.stage]), RowTile<T, DK>{});
      warpgroup_fence_operand(scores);
      warpgroup_arrive();
      multiply(mma_scores, frag_q, scores_thread.partition_fragment_B(k), scores,
               GMMA::ScaleOut::Zero);
      warpgroup_commit_batch();
    };
    const auto multiply_out = [&](int stage, uint32_t phase) {
      wait_for(s.v_full[stage], phase);
      Tensor v = make_tensor(make_smem_ptr(s.v[stage]), ColumnTile<T, DV>{});
      warpgroup_fence_operand(out);
      warpgroup_fence_operand(probs);
      warpgroup_arrive();
      multiply(mma_out, probs, out_thread.partition_fragment_B(v), out, GMMA::ScaleOut::One);
      warpgroup_commit_batch();
    };
    const auto finish_out = [&](int stage, int tile) {
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      if (clean && s.bad[stage] != 0) {
        int columns[2];
        rows.columns(tile, columns);
        add_bad_values(a, s.bad[stage], tile, columns, out);
      }
      __syncwarp();
      if (lane == 0) arrive_at(s.v_empty[stage]);
    };
    const auto pack = [&] {
      CUTE_UNROLL
      for (int i = 0; i < size(probs_bits); ++i)
        probs_bits(i) = sm80::pack<Cuda>(scores(2 * i), scores(2 * i + 1));
    };

    // Runs of own tiles. Within a run V of a tile is held while the scores of the next are
    // computed; between runs nothing is, as the ring may go round until an own tile comes.
    const auto find_run = [&]() -> bool {
      while (walk.next()) {
        if (clean) clear_bad_values(s, walk);
        if (own >> walk.tile & 1) return true;
        wait_for(s.k_full[walk.stage], walk.phase);
        if (lane == 0) arrive_at(s.k_empty[walk.stage]);
        wait_for(s.v_full[walk.stage], walk.phase);
        if (lane == 0) arrive_at(s.v_empty[walk.stage]);
      }
      return false;
    };
    const auto goes_on = [&]() -> bool {
      if ((walk.left & -walk.left & own) == 0) return false;
      walk.next();
      if (clean) clear_bad_values(s, walk);
      return true;
    };
    const auto rescale = [&] {
      if (__all_sync(~0u, softmax.rescale[0] == 1.f && softmax.rescale[1] == 1.f)) return;
      CUTE_UNROLL
      for (int i = 0; i < size(out); ++i) out(i) *= softmax.rescale[i / 2 % 2];
    };

    while (find_run()) {
      multiply_scores();
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      if (lane == 0) arrive_at(s.k_empty[walk.stage]);
      attend(a, rows, walk.tile, softmax, scores);
      rescale();
      pack();
      int tile = walk.tile;  // whose V is held
      while (goes_on()) {
        const int stage = walk.stage == 0 ? kStages - 1 : walk.stage - 1;
        multiply_scores();
        multiply_out(stage, walk.stage == 0 ? walk.phase ^ 1 : walk.phase);
        warpgroup_wait<1>();
        warpgroup_fence_operand(scores);
        if (lane == 0) arrive_at(s.k_empty[walk.stage]);
        attend(a, rows, walk.tile, softmax, scores);
        finish_out(stage, tile);
        rescale();
        pack();
        tile = walk.tile;
      }
      multiply_out(walk.stage, walk.phase);
      finish_out(walk.stage, tile);
    }
  }

  /// Output through shared memory, so that a warp writes whole rows.
  template <class Out>
  CUTE_DEVICE static void store(const DenseArguments& a, Shared& s, const Tile& tile,
                                const Rows& rows, const OnlineSoftmax& softmax, const Out& out) {
    const int lane = threadIdx.x % 32, first_row = __shfl_sync(~0u, rows.row[0], 0);
    const int used_rows = tile.count * a.group_size;
    const auto place = [&](int row) {
      return token_row(a, tile.first + row / a.group_size) * a.group_size + row % a.group_size;
    };
    float inverse[2];
    bool finite = true;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const bool ragged = rows.limit[r] > 0 && s.ragged[rows.row[r] / a.group_size] != 0;
      const float sum = ragged ? NAN : softmax.sum[r];
      inverse[r] = sum == 0.f ? 0.f : 1.f / sum;
      if (lane % 4 == 0 && rows.row[r] < used_rows)
        a.lse[place(rows.row[r])] =
            sum == 0.f ? -INFINITY
                       : (softmax.peak[r] * a.scale_log2 + log2f(sum)) * 0.6931471805599453f;
    }
    __syncwarp();
    CUTE_UNROLL
    for (int c = 0; c < DV / 16; ++c) {
      uint32_t four[4];
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float x = out(c * 8 + 2 * i), y = out(c * 8 + 2 * i + 1);
        finite &= isfinite(x) && isfinite(y);
        four[i] = sm80::pack<Cuda>(x * inverse[i % 2], y * inverse[i % 2]);
      }
      store_matrices(
          sm80::shared_address(piece_of_row(s, first_row + lane % 16, c * 2 + lane / 16)), four[0],
          four[1], four[2], four[3]);
    }
    __syncwarp();
    constexpr int kPieces = DV / 8;  // of a row
    CUTE_UNROLL
    for (int i = lane; i < 16 * kPieces; i += 32) {
      const int row = first_row + i / kPieces;
      if (row < used_rows)
        *reinterpret_cast<uint4*>(static_cast<T*>(a.out) + place(row) * DV + i % kPieces * 8) =
            *reinterpret_cast<const uint4*>(piece_of_row(s, row, i % kPieces));
    }
    if (!finite) s.redo = 1;
  }

  CUTE_DEVICE static void consume(const DenseArguments& a, Shared& s, const Tile& tile,
                                  int warpgroup) {
    MmaScores mma_scores;
    auto scores_thread = mma_scores.get_thread_slice(threadIdx.x % 128);
    Tensor frag_q =
        scores_thread.partition_fragment_A(make_tensor(make_smem_ptr(s.q), RowTile<T, DK>{}));
    Tensor out = partition_fragment_C(MmaOut{}, Shape<_64, Int<DV>>{});
    const Rows rows(a, s, tile, warpgroup);
    const uint64_t own = tiles_of_warpgroup(a, s, tile, warpgroup), all = s.all;
    wait_for(s.q_full, 0);
    read_q(s, warpgroup * 64 + threadIdx.x % 128 / 32 * 16, frag_q);
    Walk walk;
    for (bool clean = false;; clean = true) {
      OnlineSoftmax softmax;
      clear(out);
      walk.left = all;
      pass(a, s, rows, own, clean, frag_q, walk, softmax, out);
      softmax.finish();
      store(a, s, tile, rows, softmax, out);
      if (clean) return;
      cutlass::arch::NamedBarrier::sync(128 * kWarpgroups + 32, 2);  // with the warp that loads
      if (s.redo == 0) return;
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    selected_dense_kernel(const __grid_constant__ DenseArguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char raw[];
  auto& s = *reinterpret_cast<typename Kernel::Shared*>(raw + (-sm80::shared_address(raw) & 1023));
  const auto tile = Kernel::tile_of(a);
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    Barrier::init(&s.q_full, 1);
    for (int i = 0; i < Kernel::kStages; ++i) {
      Barrier::init(&s.k_full[i], 1);
      Barrier::init(&s.v_full[i], 1);
      Barrier::init(&s.k_empty[i], 4 * Kernel::kWarpgroups);  // a lane of each computing warp
      Barrier::init(&s.v_empty[i], 4 * Kernel::kWarpgroups);
    }
    cutlass::arch::fence_barrier_init();
    Kernel::load_q(a, s, tile);
    s.redo = 0;
    s.all = 0;
  }
  for (int i = threadIdx.x; i < Kernel::kRows; i += Kernel::kThreads) s.tiles[i] = s.ragged[i] = 0;
  __syncthreads();
  Kernel::read_ranges(a, s, tile);
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<Kernel::kProducerRegisters>();
    if (threadIdx.x >= 32) return;
    typename Kernel::Walk walk;
    if (threadIdx.x == 0) Kernel::produce(a, s, walk);
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(128 * Kernel::kWarpgroups + 32, 2);  // outputs are written
    if (s.redo != 0 && threadIdx.x == 0) Kernel::produce(a, s, walk);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Kernel::kConsumerRegisters>();
    Kernel::consume(a, s, tile, warpgroup - 1);
  }
#endif
}

template <int DK, int DV, typename T>
cudaError_t launch_selected_dense(const RowAttention& p, int queries, cudaStream_t stream) {
  using Kernel = SelectedDenseKernel<DK, DV, T>;
  const int group = p.num_heads / p.num_kv_heads;
  DenseArguments a{};
  a.v = p.v, a.ranges = reinterpret_cast<const int2*>(p.ranges), a.out = p.out, a.lse = p.lse;
  a.num_queries = queries, a.num_keys = p.num_keys, a.num_heads = p.num_heads;
  a.group_size = group, a.num_ranges = p.num_ranges, a.first_position = p.first_position;
  a.tokens_of_batch = p.num_queries;
  a.tokens_of_tile = Kernel::kRows / group;
  a.scale_log2 = p.scale * 1.4426950408889634f;
  const bool half = p.element == nsa::device::Element::kHalf;
  const auto map = [&](CUtensorMap& m, const Strided& x, int dim, int heads, int tokens,
                       int box_heads, int box_tokens) {
    return make_tensor_map(m, x.data, half, dim, heads, tokens, p.batch, x.head, x.token, x.batch,
                           box_heads, box_tokens);
  };
  cudaError_t status = map(a.q_map, p.q, DK, p.num_heads, queries, group, a.tokens_of_tile);
  if (p.num_keys > 0) {  // without keys nothing is loaded through the other maps
    if (status == cudaSuccess) status = map(a.k_map, p.k, DK, p.num_kv_heads, p.num_keys, 1, 64);
    if (status == cudaSuccess) status = map(a.v_map, p.v, DV, p.num_kv_heads, p.num_keys, 1, 64);
  }
  if (status != cudaSuccess) return status;
  const auto kernel = selected_dense_kernel<Kernel>;
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                Kernel::kSharedBytes);
  if (status != cudaSuccess) return status;
  const dim3 grid((queries + a.tokens_of_tile - 1) / a.tokens_of_tile, p.num_kv_heads, p.batch);
  kernel<<<grid, Kernel::kThreads, Kernel::kSharedBytes, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace nsa::device::sm90
