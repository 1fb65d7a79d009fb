// Interval attention, forward, on wgmma and TMA.
//
// One CTA computes 128 rows of one KV head; a row is a (token, head of the group) pair, row = token
// * G + head, so K and V are read once for all heads of a group. Warpgroup 0 feeds shared memory by
// TMA, two more compute 64 rows each. Within a step the products of the next tile and of this
// tile's V are in flight while the softmax runs.
//
// Masked values: a row's probability of a masked key is 0, but 0 * NaN is not. A tile with an
// output that is not finite is therefore computed once more (`redo`), with zeros in the place of
// such values: a row that attends none of them then has the bits it has without them, the others
// are computed from their own keys (`plain_row`). On finite inputs this never happens.
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
#include "nsa/device/sm90/online_softmax.cuh"
#include "nsa/device/sm90/tensor_map.h"

namespace nsa::device::sm90 {

using namespace cute;

constexpr int kRows = kRowsOfTile;
constexpr int kStages = 2;
constexpr float kLog2e = 1.4426950408889634f;

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
  static constexpr uint64_t kKeep = static_cast<uint64_t>(TMA::CacheHintSm90::EVICT_LAST);

  struct Shared {
    alignas(1024) T q[cosize_v<LayoutQ>];
    alignas(1024) T k[kStages][cosize_v<LayoutK>];
    union {
      alignas(1024) T v[kStages][cosize_v<LayoutV>];
      float sums[kSelect ? kRows : 1]
                [kSelectKeys];  // of the selection pass, when V is no longer read
    };
    float carry[kSelect ? kRows : 1][kMaxCarry];
    int redo;  // a row of the tile has an output that is not finite
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
    load_q(a, s, tile);
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

  /// A row from its own keys only, one warp, in fp32; written if it is not finite.
  CUTE_DEVICE static bool plain_row(const IntervalArguments& a, int token, int q_head,
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
    bool finite = true;
    CUTE_UNROLL
    for (int i = 0; i < DV / 32; ++i) finite &= isfinite(total[i]);
    if (__all_sync(~0u, finite)) return true;
    CUTE_UNROLL
    for (int i = 0; i < DV / 32; ++i) out[i * 32 + lane] = T(total[i]);
    return false;
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

    OnlineSoftmax softmax;
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
      if (lane == 0) arrive(s.v_empty[before]);
    }
    softmax.finish();
    if constexpr (kSelect) cutlass::arch::NamedBarrier::sync(256, 0);  // nobody reads V any more
    float lse[2];
    const unsigned bad = store(a, s, tile, half, out, softmax, rows, lse);
    const auto finish_tile = [&] {
      cutlass::arch::fence_view_async_shared();   // what follows may be a load into this memory
      cutlass::arch::NamedBarrier::sync(288, 2);  // with the warp that loads
      if (s.redo != 0)
        redo(a, s, tile, half, bad, rows, keys, lse, out, probs, scores, softmax, multiply_scores,
             multiply_out, mask, pack, rescale_out);
    };
    if constexpr (!kSelect) {
      finish_tile();
      return;
    }

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
    // The warpgroups multiply by turns: one has the tensor cores while the other sums and chooses.
    constexpr int kThreadsOfTurn = 256, kFirstTurn = 4;
    const bool leads = half == 0;
    if (!leads && tile.select_steps > 0)
      cutlass::arch::NamedBarrier::arrive(kThreadsOfTurn, kFirstTurn);
    for (int step = 0; step < tile.select_steps; ++step) {
      cutlass::arch::NamedBarrier::sync(kThreadsOfTurn, kFirstTurn + half);
      start(step, scores);
      warpgroup_wait<0>();
      if (leads || step + 1 < tile.select_steps)
        cutlass::arch::NamedBarrier::arrive(kThreadsOfTurn, kFirstTurn + 1 - half);
      choose(step, scores);
    }
    CUTE_UNROLL
    for (int u = 0; u < 16; ++u) {
      if (u >= tokens_of_warp || first_token + u >= tile.count) break;
      const int token = tile.first + first_token + u;
      const int64_t row = (int64_t(blockIdx.z) * a.num_queries + token) * gridDim.y + blockIdx.y;
      write_blocks(choice, row, a.first_position + token, best.block[u]);
    }
    finish_tile();
  }

  /// The tile once more with zeros for values of V that are not finite. The same operations in the
  /// same order as the first time, without their overlap.
  template <typename Out, typename Probs, typename Scores, class MultiplyScores, class MultiplyOut,
            class Mask, class Pack, class Rescale>
  CUTE_DEVICE static void redo(const IntervalArguments& a, Shared& s, const Tile& tile, int half,
                               unsigned bad, const int (&rows)[2], const Interval (&keys)[2],
                               const float (&lse)[2], Out& out, Probs& probs, Scores& scores,
                               OnlineSoftmax& softmax, MultiplyScores& multiply_scores,
                               MultiplyOut& multiply_out, Mask& mask, Pack& pack,
                               Rescale& rescale_out) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    clear(out);
    softmax = OnlineSoftmax{};
    wait(s.q_full, 1);
    for (int step = 0; step < tile.steps; ++step) {
      const int k_count = tile.steps + tile.select_steps + step, v_count = tile.steps + step;
      wait(s.k_full[k_count % kStages], (k_count / kStages) & 1);
      multiply_scores(k_count % kStages, scores);
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      if (lane == 0) arrive(s.k_empty[k_count % kStages]);
      mask(step);
      softmax.step(scores, a.scale_log2);
      if (step > 0) rescale_out();
      pack();
      wait(s.v_full[v_count % kStages], (v_count / kStages) & 1);
      T* v = s.v[v_count % kStages];
      for (int i = threadIdx.x - 128; i < int(cosize_v<LayoutV>); i += 256)
        if (!isfinite(float(v[i]))) v[i] = T(0.f);
      cutlass::arch::fence_view_async_shared();
      cutlass::arch::NamedBarrier::sync(256, 3);
      multiply_out(v_count % kStages);
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      cutlass::arch::NamedBarrier::sync(256, 3);
      if (lane == 0) arrive(s.v_empty[v_count % kStages]);
    }
    softmax.finish();
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      for (int group = 0; group < 8; ++group) {
        const int source = group * 4, row = half * 64 + warp * 16 + group + 8 * r;
        const bool was_bad = (__shfl_sync(~0u, bad, source) >> r) & 1;
        const Interval own{__shfl_sync(~0u, keys[r].begin, source),
                           __shfl_sync(~0u, keys[r].end, source)};
        const float own_lse = __shfl_sync(~0u, lse[r], source);
        if (!was_bad || row % a.row_group >= a.group_size || row / a.row_group >= tile.count)
          continue;  // the same for every lane
        T* to = static_cast<T*>(a.out) + place(a, tile, row) * DV;
        if (!plain_row(a, tile.first + row / a.row_group,
                       blockIdx.y * a.group_size + row % a.row_group, own, own_lse, to))
          continue;
        if (lane / 4 != group) continue;
        const float inverse = softmax.sum[r] == 0.f ? 0.f : 1.f / softmax.sum[r];
        CUTE_UNROLL
        for (int i = 0; i < decltype(size(out))::value; ++i)
          if ((i / 2) % 2 == r) to[(i / 4) * 8 + (lane % 4) * 2 + i % 2] = T(out(i) * inverse);
      }
  }

  /// Where a row of the tile stands among all rows [B, S, Hq].
  CUTE_DEVICE static int64_t place(const IntervalArguments& a, const Tile& tile, int row) {
    const int64_t token = int64_t(blockIdx.z) * a.num_queries + tile.first + row / a.row_group;
    return token * a.num_heads + blockIdx.y * a.group_size + row % a.row_group;
  }

  /// Output through shared memory, so that a warp writes whole rows. Returns which of the thread's
  /// rows are not finite.
  template <typename Out>
  CUTE_DEVICE static unsigned store(const IntervalArguments& a, Shared& s, const Tile& tile,
                                    int half, Out& out, const OnlineSoftmax& softmax,
                                    const int (&rows)[2], float (&lse)[2]) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const auto used = [&](int row) {
      return row % a.row_group < a.group_size && row / a.row_group < tile.count;
    };
    unsigned bad = 0;  // bit r: row r of this thread is not finite
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
      if (!finite && used(rows[r])) bad |= 1u << r;
      if (lane % 4 == 0 && used(rows[r])) a.lse[place(a, tile, rows[r])] = lse[r];
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
        *reinterpret_cast<uint4*>(static_cast<T*>(a.out) + place(a, tile, row) * DV + column) =
            *reinterpret_cast<const uint4*>(piece(row, column));
    }
    if (bad != 0) s.redo = 1;
    return bad;
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
    s.redo = 0;
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    // 128 x (168 - 40) registers, of those a launch gives, go to 256 x (232 - 168).
    cutlass::arch::warpgroup_reg_dealloc<40>();
    if (threadIdx.x >= 32) return;
    if (threadIdx.x == 0) Kernel::produce(a, s, tile);
    __syncwarp();
    cutlass::arch::NamedBarrier::sync(288, 2);  // every output is written
    if (s.redo != 0 && threadIdx.x == 0) Kernel::produce_again(a, s, tile);
  } else {
    cutlass::arch::warpgroup_reg_alloc<232>();
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
