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
#include "nsa/device/sm90/block_selector.cuh"
#include "nsa/device/sm90/interval_arguments.h"
#include "nsa/device/sm90/interval_attention_launch.h"
#include "nsa/device/sm90/interval_bounds.h"

namespace nsa::device::sm90 {

using namespace cute;

constexpr int kRows = kRowsOfTile;
constexpr int kStages = 2;
constexpr float kLog2e = 1.4426950408889634f;

/// Named barriers of the two warpgroups that compute (256 threads).
enum IntervalBarrier {
  kValuesRead = 0,
  kOutputWritten = 1,
  kTileStored = 2,
  kRepair = 3,
  kTurn = 4
};

/// The two warpgroups enqueue their products by turns, so that one has the tensor cores while the
/// other works on its scores.
struct TurnOfTwo {
  CUTE_DEVICE explicit TurnOfTwo(int half) : half(half) {
    if (half == 1) cutlass::arch::NamedBarrier::arrive(256, kTurn);
  }
  CUTE_DEVICE void await() const { cutlass::arch::NamedBarrier::sync(256, kTurn + half); }
  /// last: this warpgroup takes no further turn.
  CUTE_DEVICE void pass(bool last) const {
    if (half == 0 || !last) cutlass::arch::NamedBarrier::arrive(256, kTurn + 1 - half);
  }
  int half;
};

/// Types and steps that all parts of a CTA share.
template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalTiles {
  using Element = T;
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
  static constexpr int kThreads = 384;
  static constexpr uint64_t kKeep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);

  struct Shared {
    union {
      alignas(1024) T q[cosize_v<LayoutQ>];
      BlockList lists[kSelect ? kRows : 1];  // of the selection pass, when Q is in registers
    };
    alignas(1024) T k[kStages][cosize_v<LayoutK>];
    union {
      alignas(1024) T v[kStages][cosize_v<LayoutV>];
      float sums[kSelect ? kRows : 1][kSelectKeys];  // likewise, when V is no longer read
    };
    ListState states[kSelect ? kRows : 1];
    int redo;  // a row of the tile has an output that is not finite
    alignas(8) uint64_t q_full, k_full[kStages], v_full[kStages], k_empty[kStages],
        v_empty[kStages], stored;
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;

  CUTE_DEVICE static Span keys_at(const IntervalArguments& a, int position) {
    return keys_of(a.rule, position, a.num_keys, a.by_stride);
  }

  /// The tile of a CTA: tokens [first, first + count) and the keys any of them attends.
  struct Tile {
    int first, count, begin, steps;
    int select_steps;  // steps of the selection pass
  };
  CUTE_DEVICE static Tile tile_of(const IntervalArguments& a) {
    // The last tiles attend the most keys: they start first.
    const int index = gridDim.x - 1 - blockIdx.x;
    Tile tile;
    tile.first = index * a.tokens_per_tile;
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

  CUTE_DEVICE static void wait(uint64_t& barrier, uint32_t phase) {
    cutlass::arch::ClusterTransactionBarrier::wait(&barrier, phase);
  }
  CUTE_DEVICE static void arrive(uint64_t& barrier) {
    cutlass::arch::ClusterBarrier::arrive(&barrier);
  }

  /// The thread that has loaded Q: K and V of every step as places become free.
  CUTE_DEVICE static void produce(const IntervalArguments& a, Shared& s, const Tile& tile) {
    for (int step = 0; step < tile.steps; ++step) {
      load_k(a, s, step, tile.begin + step * BN);
      load_v(a, s, step, tile.begin + step * BN);
    }
    if constexpr (kSelect) {  // the keys once more, for the scores
      for (int i = 0; i < tile.select_steps; ++i) load_k(a, s, tile.steps + i, i * BN);
    }
  }
  /// Once more, for `redo`; nobody reads shared memory by now.
  CUTE_DEVICE static void produce_again(const IntervalArguments& a, Shared& s, const Tile& tile) {
    load_q(a, s, tile);
    for (int step = 0; step < tile.steps; ++step) {
      load_k(a, s, tile.steps + tile.select_steps + step, tile.begin + step * BN);
      load_v(a, s, tile.steps + step, tile.begin + step * BN);
    }
  }
  CUTE_DEVICE static void load_q(const IntervalArguments& a, Shared& s, const Tile& tile) {
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const uint64_t once = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST);
    Full::arrive_and_expect_tx(&s.q_full, a.tokens_per_tile * a.group_size * DK * sizeof(T));
    // One box when tokens lie without gaps, else one a token.
    const int boxes = a.row_group == a.group_size ? 1 : a.tokens_per_tile;
    for (int c = 0; c < DK; c += 64)
      for (int i = 0; i < boxes; ++i)
        SM90_TMA_LOAD_4D::copy(&a.q_map, &s.q_full, once, s.q + c * kRows + i * a.row_group * 64, c,
                               blockIdx.y * a.group_size, tile.first + i, blockIdx.z);
  }
  /// The `count`-th load of K (of V) of this CTA, keys from `key` on, when its place is free.
  CUTE_DEVICE static void load_k(const IntervalArguments& a, Shared& s, int count, int key) {
    const int stage = count % kStages;
    wait(s.k_empty[stage], (count / kStages + 1) & 1);
    cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(&s.k_full[stage],
                                                                   BN * DK * sizeof(T));
    for (int c = 0; c < DK; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.k_map, &s.k_full[stage], kKeep, s.k[stage] + c * BN, c, blockIdx.y,
                             key, blockIdx.z);
  }
  CUTE_DEVICE static void load_v(const IntervalArguments& a, Shared& s, int count, int key) {
    const int stage = count % kStages;
    wait(s.v_empty[stage], (count / kStages + 1) & 1);
    cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(&s.v_full[stage],
                                                                   BN * DV * sizeof(T));
    for (int c = 0; c < DV; c += 64)
      SM90_TMA_LOAD_4D::copy(&a.v_map, &s.v_full[stage], kKeep, s.v[stage] + c * BN, c, blockIdx.y,
                             key, blockIdx.z);
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
      return (int64_t(blockIdx.z) * a.num_queries + tile.first + token) * a.num_heads +
             blockIdx.y * a.group_size + head;
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
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    Rows rows;
    for (int r = 0; r < 2; ++r) {
      rows.index[r] = half * 64 + warp * 16 + lane / 4 + 8 * r;
      const int token = min(row_of(a, rows.index[r]).token, tile.count - 1);
      rows.keys[r] = keys_at(a, a.first_position + tile.first + token);
    }
    rows.inner = {keys_at(a, a.first_position + tile.first + tile.count - 1).begin,
                  keys_at(a, a.first_position + tile.first).end};
    return rows;
  }

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
  CUTE_DEVICE static void mask(const Tile& tile, const Rows& rows, int step, Scores& scores) {
    const int first = tile.begin + step * BN;
    if (first >= rows.inner.begin && first + BN <= rows.inner.end) return;
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i) {
      const int key = first + (i / 4) * 8 + (threadIdx.x % 4) * 2 + i % 2, r = (i / 2) % 2;
      if (key < rows.keys[r].begin || key >= rows.keys[r].end) scores(i) = -INFINITY;
    }
  }
  template <class Scores, class Probs>
  CUTE_DEVICE static void pack(const Scores& scores, Probs& probs) {
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i) probs(i) = T(scores(i));
  }
};

}  // namespace nsa::device::sm90
