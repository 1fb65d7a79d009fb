// Interval attention, forward, on wgmma and TMA.
//
// One CTA computes 128 rows of one KV head; a row is a (token, head of the group) pair, row = token
// * G + head, so K and V are read once for all heads of a group. Warpgroup 0 feeds shared memory by
// TMA, two more compute 64 rows each. Within a step the products of the next tile and of this
// tile's V are in flight while the softmax runs.
//
// Masked values: a row's probability of a masked key is 0, but 0 * NaN is not. A row whose output
// is not finite is therefore computed once more, from its own keys only (`plain_row`). On finite
// inputs this never happens.
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
#include "nsa/device/sm90/interval_attention_launch.h"
#include "nsa/device/sm90/tensor_map.h"

namespace nsa::device::sm90 {

using namespace cute;

constexpr int kRows = kRowsOfTile;
constexpr int kStages = 2;
constexpr float kLog2e = 1.4426950408889634f;

/// What a launch passes by value.
struct IntervalArguments {
  CUtensorMap q_map, k_map, v_map;
  Strided q, k, v;  // for plain_row
  void* out;
  float* lse;
  int num_queries, num_keys, num_heads, group_size, first_position;
  int row_group;        // rows a token takes in a tile: G, or the next power of two when blocks are
                        // chosen
  int tokens_per_tile;  // kRows / row_group
  IntervalRule rule;
  float scale_log2;
  BlockSelection selection;  // with kSelect only
};

template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalKernel {
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

  struct Shared {
    alignas(1024) T q[cosize_v<LayoutQ>];
    alignas(1024) T k[kStages][cosize_v<LayoutK>];
    union {
      alignas(1024) T v[kStages][cosize_v<LayoutV>];
      float sums[kSelect ? kRows : 1]
                [kSelectKeys];  // of the selection pass, when V is no longer read
    };
    float carry[kSelect ? kRows : 1][kMaxCarry];
    alignas(8) uint64_t q_full, k_full[kStages], v_full[kStages], k_empty[kStages],
        v_empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;

  /// The keys of one position.
  struct Interval {
    int begin, end;
  };
  CUTE_DEVICE static Interval interval_of(const IntervalArguments& a, int position) {
    const int extent = a.rule.extent;
    const int visible = position + 1 < extent ? 0 : (position + 1 - extent) / a.rule.stride + 1;
    return {max(0, position - a.rule.window + 1), min(visible, a.num_keys)};
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
    tile.begin = interval_of(a, a.first_position + tile.first).begin;
    const int end = interval_of(a, a.first_position + tile.first + tile.count - 1).end;
    tile.steps = max(0, (end - tile.begin + BN - 1) / BN);
    tile.select_steps = 0;
    if constexpr (kSelect) {
      const BlockSelection& choice = a.selection;
      const int current = (a.first_position + tile.first + tile.count - 1) / choice.sel_block_size;
      const int free_blocks = current + 1 - choice.num_local;  // candidates are below this
      const bool places = choice.top_n > choice.num_initial + choice.num_local;
      if (current + 1 > choice.top_n && places)
        tile.select_steps = (free_blocks * (choice.sel_block_size / a.rule.stride) + BN - 1) / BN;
    }
    return tile;
  }

  CUTE_DEVICE static void wait(uint64_t& barrier, uint32_t phase) {
    cutlass::arch::ClusterTransactionBarrier::wait(&barrier, phase);
  }
  CUTE_DEVICE static void arrive(uint64_t& barrier) {
    cutlass::arch::ClusterBarrier::arrive(&barrier);
  }

  /// One thread: loads Q, then K and V of every step as places become free.
  CUTE_DEVICE static void produce(const IntervalArguments& a, Shared& s, const Tile& tile) {
    const int head = blockIdx.y, batch = blockIdx.z;
    using Full = cutlass::arch::ClusterTransactionBarrier;
    const uint64_t keep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);
    const uint64_t once = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_FIRST);
    Full::arrive_and_expect_tx(&s.q_full, a.tokens_per_tile * a.group_size * DK * sizeof(T));
    // One box when tokens lie without gaps, else one a token.
    const int boxes = a.row_group == a.group_size ? 1 : a.tokens_per_tile;
    for (int c = 0; c < DK; c += 64)
      for (int i = 0; i < boxes; ++i)
        SM90_TMA_LOAD_4D::copy(&a.q_map, &s.q_full, once, s.q + c * kRows + i * a.row_group * 64, c,
                               head * a.group_size, tile.first + i, batch);
    for (int step = 0; step < tile.steps; ++step) {
      const int stage = step % kStages, key = tile.begin + step * BN;
      const uint32_t phase = (step / kStages + 1) & 1;
      wait(s.k_empty[stage], phase);
      Full::arrive_and_expect_tx(&s.k_full[stage], BN * DK * sizeof(T));
      for (int c = 0; c < DK; c += 64)
        SM90_TMA_LOAD_4D::copy(&a.k_map, &s.k_full[stage], keep, s.k[stage] + c * BN, c, head, key,
                               batch);
      wait(s.v_empty[stage], phase);
      Full::arrive_and_expect_tx(&s.v_full[stage], BN * DV * sizeof(T));
      for (int c = 0; c < DV; c += 64)
        SM90_TMA_LOAD_4D::copy(&a.v_map, &s.v_full[stage], keep, s.v[stage] + c * BN, c, head, key,
                               batch);
    }
    if constexpr (kSelect) {  // the keys once more, for the scores
      for (int i = 0; i < tile.select_steps; ++i) {
        const int step = tile.steps + i, stage = step % kStages;
        wait(s.k_empty[stage], (step / kStages + 1) & 1);
        Full::arrive_and_expect_tx(&s.k_full[stage], BN * DK * sizeof(T));
        for (int c = 0; c < DK; c += 64)
          SM90_TMA_LOAD_4D::copy(&a.k_map, &s.k_full[stage], keep, s.k[stage] + c * BN, c, head,
                                 i * BN, batch);
      }
    }
  }

  /// Running maximum and sum of the two rows a thread shares with its quad.
  struct Softmax {
    float peak[2] = {-INFINITY, -INFINITY};
    float sum[2] = {0.f, 0.f};
    float rescale[2];

    /// scores -> probabilities relative to the running maximum. `scores` has the accumulator's
    /// order: pairs of columns, row 0 then row 1, every 8 columns.
    template <typename Scores>
    CUTE_DEVICE void step(Scores& scores, float scale_log2) {
      constexpr int kCount = decltype(size(scores))::value;
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        float top = peak[r];
        CUTE_UNROLL
        for (int i = 2 * r; i < kCount; i += 4) top = fmaxf(top, fmaxf(scores(i), scores(i + 1)));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        const float shift = top == -INFINITY ? 0.f : top * scale_log2;
        rescale[r] = peak[r] == -INFINITY ? 0.f : exp2f(peak[r] * scale_log2 - shift);
        peak[r] = top;
        float part = 0.f;
        CUTE_UNROLL
        for (int i = 2 * r; i < kCount; i += 4) {
          scores(i) = exp2f(fmaf(scores(i), scale_log2, -shift));
          scores(i + 1) = exp2f(fmaf(scores(i + 1), scale_log2, -shift));
          part += scores(i) + scores(i + 1);
        }
        sum[r] = sum[r] * rescale[r] + part;
      }
    }
    CUTE_DEVICE void finish() {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
        sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
      }
    }
  };

  /// A row that meets a value that is not finite: its own keys only, one warp, in fp32.
  CUTE_DEVICE static void plain_row(const IntervalArguments& a, int token, int q_head,
                                    Interval keys, float lse, T* out) {
    const int lane = threadIdx.x % 32, kv_head = blockIdx.y, batch = blockIdx.z;
    const T* q =
        static_cast<const T*>(a.q.data) + batch * a.q.batch + token * a.q.token + q_head * a.q.head;
    const T* k = static_cast<const T*>(a.k.data) + batch * a.k.batch + kv_head * a.k.head;
    const T* v = static_cast<const T*>(a.v.data) + batch * a.v.batch + kv_head * a.v.head;
    float total[DV / 32] = {};
    for (int key = keys.begin; key < keys.end; ++key) {
      float dot = 0.f;
      for (int c = lane; c < DK; c += 32) dot += float(q[c]) * float(k[key * a.k.token + c]);
      CUTE_UNROLL
      for (int mask = 16; mask > 0; mask /= 2) dot += __shfl_xor_sync(~0u, dot, mask);
      const float p = exp2f(dot * a.scale_log2 - lse * kLog2e);
      CUTE_UNROLL
      for (int i = 0; i < DV / 32; ++i) total[i] += p * float(v[key * a.v.token + i * 32 + lane]);
    }
    CUTE_UNROLL
    for (int i = 0; i < DV / 32; ++i) out[i * 32 + lane] = T(total[i]);
  }

  /// One warpgroup: 64 rows.
  CUTE_DEVICE static void consume(const IntervalArguments& a, Shared& s, const Tile& tile,
                                  int half) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    Tensor sq = make_tensor(make_smem_ptr(s.q), LayoutQ{});
    Tensor own_q = local_tile(sq, Shape<_64, Int<DK>>{}, make_coord(half, 0));
    MmaScores mma_scores;
    MmaOut mma_out;
    auto scores_thread = mma_scores.get_thread_slice(thread);
    auto out_thread = mma_out.get_thread_slice(thread);
    Tensor frag_q = scores_thread.partition_fragment_A(own_q);
    Tensor scores = partition_fragment_C(mma_scores, Shape<_64, Int<BN>>{});
    Tensor out = partition_fragment_C(mma_out, Shape<_64, Int<DV>>{});
    // Probabilities as the A operand of the second product: the same registers, packed in pairs.
    Tensor probs = make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, Int<BN / 16>>>{});
    static_assert(decltype(size(probs))::value == BN / 2);
    clear(out);

    // The two rows of this thread.
    int rows[2], tokens[2];
    Interval keys[2];
    int inner_begin = 0, inner_end = 1 << 30;  // keys that every row of the tile attends
    for (int r = 0; r < 2; ++r) {
      rows[r] = half * 64 + warp * 16 + lane / 4 + 8 * r;
      tokens[r] = min(rows[r] / a.row_group, tile.count - 1);
      keys[r] = interval_of(a, a.first_position + tile.first + tokens[r]);
    }
    inner_begin = interval_of(a, a.first_position + tile.first + tile.count - 1).begin;
    inner_end = interval_of(a, a.first_position + tile.first).end;

    Softmax softmax;
    const auto multiply_scores = [&](int stage, auto& scores) {
      Tensor sk = make_tensor(make_smem_ptr(s.k[stage]), LayoutK{});
      Tensor frag_k = scores_thread.partition_fragment_B(sk);
      warpgroup_fence_operand(scores);
      warpgroup_arrive();
      mma_scores.accumulate_ = GMMA::ScaleOut::Zero;
      CUTE_UNROLL
      for (int i = 0; i < size<2>(frag_q); ++i) {
        gemm(mma_scores, frag_q(_, _, i), frag_k(_, _, i), scores);
        mma_scores.accumulate_ = GMMA::ScaleOut::One;
      }
      warpgroup_commit_batch();
    };
    const auto multiply_out = [&](int stage) {
      Tensor sv = make_tensor(make_smem_ptr(s.v[stage]), LayoutV{});
      Tensor frag_v = out_thread.partition_fragment_B(sv);
      warpgroup_fence_operand(out);
      warpgroup_fence_operand(probs);
      warpgroup_arrive();
      mma_out.accumulate_ = GMMA::ScaleOut::One;
      CUTE_UNROLL
      for (int i = 0; i < size<2>(frag_v); ++i) gemm(mma_out, probs(_, _, i), frag_v(_, _, i), out);
      warpgroup_commit_batch();
    };
    const auto mask = [&](int step) {
      const int first = tile.begin + step * BN;
      if (first >= inner_begin && first + BN <= inner_end) return;
      CUTE_UNROLL
      for (int i = 0; i < size(scores); ++i) {
        const int key = first + (i / 4) * 8 + (lane % 4) * 2 + i % 2, r = (i / 2) % 2;
        if (key < keys[r].begin || key >= keys[r].end) scores(i) = -INFINITY;
      }
    };
    const auto pack = [&] {
      CUTE_UNROLL
      for (int i = 0; i < size(scores); ++i) probs(i) = T(scores(i));
    };
    const auto rescale_out = [&] {
      CUTE_UNROLL
      for (int i = 0; i < size(out); ++i) out(i) *= softmax.rescale[(i / 2) % 2];
    };

    wait(s.q_full, 0);
    if (tile.steps > 0) {
      wait(s.k_full[0], 0);
      multiply_scores(0, scores);
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      if (lane == 0) arrive(s.k_empty[0]);
      mask(0);
      softmax.step(scores, a.scale_log2);
      pack();
    }
    for (int step = 1; step < tile.steps; ++step) {
      const int stage = step % kStages, before = (step - 1) % kStages;
      wait(s.k_full[stage], (step / kStages) & 1);
      multiply_scores(stage, scores);
      wait(s.v_full[before], ((step - 1) / kStages) & 1);
      multiply_out(before);
      warpgroup_wait<1>();
      warpgroup_fence_operand(scores);
      if (lane == 0) arrive(s.k_empty[stage]);
      mask(step);
      softmax.step(scores, a.scale_log2);
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      if (lane == 0) arrive(s.v_empty[before]);
      rescale_out();
      pack();
    }
    if (tile.steps > 0) {
      const int before = (tile.steps - 1) % kStages;
      wait(s.v_full[before], ((tile.steps - 1) / kStages) & 1);
      multiply_out(before);
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
    }
    softmax.finish();
    if constexpr (kSelect) cutlass::arch::NamedBarrier::sync(256, 0);  // nobody reads V any more
    float lse[2];
    store(a, s, tile, half, out, softmax, rows, keys, lse);
    if constexpr (!kSelect) return;

    // Selection pass: the same logits again, now with their lse.
    cutlass::arch::NamedBarrier::sync(
        256, 1);  // every warp has written its output: the place becomes `sums`
    const int tokens_of_warp = 16 / a.row_group,
              first_token = (half * 64 + warp * 16) / a.row_group;
    float* sums = s.sums[first_token];
    float (*carry)[kMaxCarry] = s.carry + first_token;
    const BlockSelection& choice = a.selection;
    const int strides = choice.sel_block_size / a.rule.stride,
              overlap = a.rule.extent / a.rule.stride - 1;
    const int places = choice.top_n - choice.num_initial - choice.num_local,
              blocks_of_step = kSelectKeys / strides;
    BestBlocks best;
    best.clear();
    for (int i = lane; i < tokens_of_warp * kMaxCarry; i += 32)
      carry[i / kMaxCarry][i % kMaxCarry] = 0.f;
    int limit[2];  // keys from here on count nothing for a row
    float shift[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const bool used = rows[r] % a.row_group < a.group_size && rows[r] / a.row_group < tile.count;
      limit[r] = used ? keys[r].end : 0;
      shift[r] = -lse[r] * kLog2e;
    }
    const bool all_used =
        a.row_group == a.group_size && tile.count == a.tokens_per_tile;  // no row counts nothing
    const auto start = [&](int step, auto& into) {
      const int at = tile.steps + step;
      wait(s.k_full[at % kStages], (at / kStages) & 1);
      multiply_scores(at % kStages, into);
    };
    const auto choose = [&](int step, auto& scores) __attribute__((always_inline)) {
      warpgroup_fence_operand(scores);
      if (lane == 0) arrive(s.k_empty[(tile.steps + step) % kStages]);
      const bool visible = all_used && (step + 1) * BN <= inner_end;
      CUTE_UNROLL
      for (int i = 0; i < decltype(size(scores))::value; ++i)
        scores(i) = exp2f(fmaf(scores(i), a.scale_log2, shift[(i / 2) % 2]));
      if (!visible) {
        CUTE_UNROLL
        for (int i = 0; i < decltype(size(scores))::value; ++i)
          if (step * BN + (i / 4) * 8 + (lane % 4) * 2 + i % 2 >= limit[(i / 2) % 2])
            scores(i) = 0.f;
      }
      __syncwarp();
      sum_rows_of_tokens(scores, sums, a.row_group);
      __syncwarp();
      CUTE_UNROLL
      for (int u = 0; u < 16; ++u) {
        if (u >= tokens_of_warp) break;
        const int current =
            (a.first_position + tile.first + first_token + u) / choice.sel_block_size;
        for (int first = 0; first < blocks_of_step; first += 32) {
          const int own = first + lane, block = step * blocks_of_step + own;
          const bool valid = own < blocks_of_step && block >= choice.num_initial &&
                             block <= current - choice.num_local;
          const float score = pooled_score(sums + u * kSelectKeys, carry[u], own, strides, overlap);
          BestBlocks::offer(best.score[u], best.block[u], places, score, block, valid);
        }
        __syncwarp();
        if (lane < overlap) carry[u][lane] = sums[u * kSelectKeys + kSelectKeys - overlap + lane];
      }
      __syncwarp();
    };
    for (int step = 0; step < tile.select_steps; ++step) {
      start(step, scores);
      warpgroup_wait<0>();
      choose(step, scores);
    }
    CUTE_UNROLL
    for (int u = 0; u < 16; ++u) {
      if (u >= tokens_of_warp || first_token + u >= tile.count) break;
      const int token = tile.first + first_token + u;
      const int64_t row = (int64_t(blockIdx.z) * a.num_queries + token) * gridDim.y + blockIdx.y;
      write_blocks(choice, row, a.first_position + token, best.block[u]);
    }
  }

  /// Output through shared memory, so that a warp writes whole rows.
  template <typename Out>
  CUTE_DEVICE static void store(const IntervalArguments& a, Shared& s, const Tile& tile, int half,
                                Out& out, const Softmax& softmax, const int (&rows)[2],
                                const Interval (&keys)[2], float (&lse)[2]) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const auto used = [&](int row) {
      return row % a.row_group < a.group_size && row / a.row_group < tile.count;
    };
    const int64_t first_row = (int64_t(blockIdx.z) * a.num_queries + tile.first) * a.num_heads +
                              blockIdx.y * a.group_size;
    const auto place = [&](int row) {
      return first_row + int64_t(row / a.row_group) * a.num_heads + row % a.row_group;
    };
    unsigned bad = 0;  // bit r: row r of this thread needs plain_row
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float inverse = softmax.sum[r] == 0.f ? 0.f : 1.f / softmax.sum[r];
      lse[r] = softmax.sum[r] == 0.f
                   ? -INFINITY
                   : (softmax.peak[r] * a.scale_log2 + log2f(softmax.sum[r])) / kLog2e;
      bool finite = true;
      CUTE_UNROLL
      for (int i = 2 * r; i < decltype(size(out))::value; i += 4)
        for (int j = i; j < i + 2; ++j) {
          finite &= isfinite(out(j));
          out(j) *= inverse;
        }
      if (!finite) bad |= 1u << r;
      if (lane % 4 == 0 && used(rows[r])) a.lse[place(rows[r])] = lse[r];
    }
    bad |= __shfl_xor_sync(~0u, bad, 1);
    bad |= __shfl_xor_sync(~0u, bad, 2);

    // Own 16 rows of a tile nobody reads any more (Q's; V's when Q is needed again): [64-column
    // chunk][row][64], 16-byte pieces swizzled by row.
    const int base = half * 64 + warp * 16;
    T* const tile_rows = kSelect ? s.v[0] : s.q;
    const auto piece = [&](int row, int column) -> T* {
      return tile_rows + (column / 64) * (kRows * 64) + row * 64 +
             (((column % 64) / 8) ^ (row % 8)) * 8 + column % 8;
    };
    __syncwarp();
    CUTE_UNROLL
    for (int i = 0; i < decltype(size(out))::value; i += 2) {
      const int r = (i / 2) % 2, column = (i / 4) * 8 + (lane % 4) * 2;
      T pair[2] = {T(out(i)), T(out(i + 1))};
      *reinterpret_cast<uint32_t*>(piece(rows[r], column)) = *reinterpret_cast<uint32_t*>(pair);
    }
    __syncwarp();
    constexpr int kPieces = DV / 8;  // of a row
    for (int i = lane; i < 16 * kPieces; i += 32) {
      const int row = base + i / kPieces, column = (i % kPieces) * 8;
      if (used(row))
        *reinterpret_cast<uint4*>(static_cast<T*>(a.out) + place(row) * DV + column) =
            *reinterpret_cast<const uint4*>(piece(row, column));
    }
    if (__any_sync(~0u, bad) == 0) return;
    for (int r = 0; r < 2; ++r)
      for (int group = 0; group < 8; ++group) {
        const int source = group * 4;
        const int row = base + group + 8 * r;
        const bool redo = (__shfl_sync(~0u, bad, source) >> r) & 1;
        const Interval own{__shfl_sync(~0u, keys[r].begin, source),
                           __shfl_sync(~0u, keys[r].end, source)};
        const float own_lse = __shfl_sync(~0u, lse[r], source);
        if (redo && used(row))
          plain_row(a, tile.first + row / a.row_group,
                    blockIdx.y * a.group_size + row % a.row_group, own, own_lse,
                    static_cast<T*>(a.out) + place(row) * DV);
      }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    interval_attention_kernel(const __grid_constant__ IntervalArguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char raw[];
  auto& s = *reinterpret_cast<typename Kernel::Shared*>((reinterpret_cast<uintptr_t>(raw) + 1023) /
                                                        1024 * 1024);
  const auto tile = Kernel::tile_of(a);
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    Barrier::init(&s.q_full, 1);
    for (int i = 0; i < kStages; ++i) {
      Barrier::init(&s.k_full[i], 1);
      Barrier::init(&s.v_full[i], 1);
      Barrier::init(&s.k_empty[i], 8);  // a lane of each computing warp
      Barrier::init(&s.v_empty[i], 8);
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<24>();
    if (threadIdx.x == 0) Kernel::produce(a, s, tile);
  } else {
    cutlass::arch::warpgroup_reg_alloc<240>();
    Kernel::consume(a, s, tile, warpgroup - 1);
  }
#endif
}

template <int DK, int DV, int BN, typename T, bool kSelect = false>
cudaError_t launch_interval_attention(const IntervalAttention& p, cudaStream_t stream) {
  using Kernel = IntervalKernel<DK, DV, BN, T, kSelect>;
  const int group = p.num_heads / p.num_kv_heads;
  IntervalArguments a{};
  a.q = p.q, a.k = p.k, a.v = p.v, a.out = p.out, a.lse = p.lse;
  a.num_queries = p.num_queries, a.num_keys = p.num_keys, a.num_heads = p.num_heads,
  a.group_size = group;
  a.row_group = group;
  if (kSelect)
    for (a.row_group = 1; a.row_group < group;) a.row_group *= 2;
  a.tokens_per_tile = kRows / a.row_group, a.first_position = p.first_position, a.rule = p.rule;
  a.selection = p.selection;
  a.scale_log2 = p.scale * kLog2e;
  const bool half = p.element == nsa::device::Element::kHalf;
  const auto map = [&](CUtensorMap& m, const Strided& x, int dim, int heads, int tokens,
                       int box_heads, int box_tokens) {
    return make_tensor_map(m, x.data, half, dim, heads, tokens, p.batch, x.head, x.token, x.batch,
                           box_heads, box_tokens);
  };
  cudaError_t status = map(a.q_map, p.q, DK, p.num_heads, p.num_queries, group,
                           a.row_group == group ? a.tokens_per_tile : 1);
  if (p.num_keys > 0) {  // without keys nothing is loaded through the other maps
    if (status == cudaSuccess) status = map(a.k_map, p.k, DK, p.num_kv_heads, p.num_keys, 1, BN);
    if (status == cudaSuccess) status = map(a.v_map, p.v, DV, p.num_kv_heads, p.num_keys, 1, BN);
  }
  if (status != cudaSuccess) return status;
  const auto kernel = interval_attention_kernel<Kernel>;
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                Kernel::kSharedBytes);
  if (status != cudaSuccess) return status;
  const dim3 grid((p.num_queries + a.tokens_per_tile - 1) / a.tokens_per_tile, p.num_kv_heads,
                  p.batch);
  kernel<<<grid, Kernel::kThreads, Kernel::kSharedBytes, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace nsa::device::sm90
