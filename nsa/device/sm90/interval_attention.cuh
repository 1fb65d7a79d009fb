// Interval attention, forward, on wgmma and TMA.
//
// One CTA computes 128 rows of one KV head; a row is a (token, head of the group) pair, row = token
// * G + head, so K and V are read once for all heads of a group. Warpgroup 0 feeds shared memory by
// TMA, two more compute 64 rows each. Within a step the products of the next tile and of this
// tile's V are in flight while the softmax runs. What follows the output: the choice of blocks
// (selection_pass.cuh) and, where an output is not finite, interval_repair.cuh.
#pragma once
#include "nsa/device/sm90/interval_repair.cuh"
#include "nsa/device/sm90/interval_tiles.cuh"
#include "nsa/device/sm90/online_softmax.cuh"
#include "nsa/device/sm90/selection_pass.cuh"
#include "nsa/device/sm90/tensor_map.h"

namespace nsa::device::sm90 {

template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalKernel : IntervalTiles<DK, DV, BN, T, kSelect> {
  using Base = IntervalTiles<DK, DV, BN, T, kSelect>;
  using typename Base::Rows, typename Base::Shared, typename Base::Tile;

  /// One warpgroup: 64 rows.
  CUTE_DEVICE static void consume(const IntervalArguments& a, Shared& s, const Tile& tile,
                                  int half) {
    const Rows rows = Base::rows_of(a, tile, half);
    auto out = Base::out_fragment();
    OnlineSoftmax softmax;
    clear(out);
    Base::wait(s.q_full, 0);
    if (tile.steps > 0) attend(a, s, tile, half, rows, softmax, out);
    softmax.finish();
    if constexpr (kSelect) cutlass::arch::NamedBarrier::sync(256, kValuesRead);
    float lse[2];
    const unsigned bad = store(a, s, tile, half, out, softmax, rows.index, lse);
    if constexpr (kSelect) SelectionPass<DK, DV, BN, T>::run(a, s, tile, half, rows, lse);
    cutlass::arch::NamedBarrier::sync(256, kTileStored);
    const bool again = s.redo != 0;
    if (again) cutlass::arch::fence_view_async_shared();  // loads into this memory follow
    __syncwarp();
    if (threadIdx.x % 32 == 0) Base::arrive(s.stored);
    if (again) IntervalRepair<DK, DV, BN, T, kSelect>::redo(a, s, tile, half, bad, rows, lse);
  }

  template <class Out>
  CUTE_DEVICE static void attend(const IntervalArguments& a, Shared& s, const Tile& tile, int half,
                                 const Rows& rows, OnlineSoftmax& softmax, Out& out) {
    auto scores = Base::scores_fragment();
    auto probs = Base::probs_fragment();
    const bool leads = threadIdx.x % 32 == 0;  // its warp
    const auto wait_v = [&](int step) {
      Base::wait(s.v_full[step % kStages], (step / kStages) & 1);
    };
    const auto scores_ready = [&](int step) {
      warpgroup_fence_operand(scores);
      if (leads) Base::arrive(s.k_empty[step % kStages]);
      Base::mask(tile, rows, step, scores);
      softmax.step(scores, a.scale_log2);
    };
    const auto out_ready = [&](int step) {
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      if (leads) Base::arrive(s.v_empty[step % kStages]);
    };

    const TurnOfTwo turn(half);
    Base::wait(s.k_full[0], 0);
    turn.await();
    Base::multiply_scores(s, half, 0, scores);
    turn.pass(tile.steps == 1);
    warpgroup_wait<0>();
    scores_ready(0);
    Base::pack(scores, probs);
    for (int step = 1; step < tile.steps; ++step) {
      const int stage = step % kStages, before = (step - 1) % kStages;
      Base::wait(s.k_full[stage], (step / kStages) & 1);
      turn.await();
      Base::multiply_scores(s, half, stage, scores);
      wait_v(step - 1);
      Base::multiply_out(s, before, probs, out);
      turn.pass(step + 1 == tile.steps);
      warpgroup_wait<1>();
      scores_ready(step);
      out_ready(step - 1);
      softmax.rescale_rows(out);
      Base::pack(scores, probs);
    }
    wait_v(tile.steps - 1);
    Base::multiply_out(s, (tile.steps - 1) % kStages, probs, out);
    out_ready(tile.steps - 1);
  }

  /// Output through shared memory, so that a warp writes whole rows. Returns which of the thread's
  /// rows are not finite.
  template <typename Out>
  CUTE_DEVICE static unsigned store(const IntervalArguments& a, Shared& s, const Tile& tile,
                                    int half, Out& out, const OnlineSoftmax& softmax,
                                    const int (&rows)[2], float (&lse)[2]) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    unsigned bad = 0;  // bit r: row r of this thread is not finite
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float inverse = softmax.sum[r] == 0.f ? 0.f : 1.f / softmax.sum[r];
      lse[r] = softmax.sum[r] == 0.f
                   ? -INFINITY
                   : (softmax.peak[r] * a.scale_log2 + log2f(softmax.sum[r])) / kLog2e;
      float probe[2] = {};  // what is not finite stays so in a sum
      CUTE_UNROLL
      for (int i = 2 * r; i < decltype(size(out))::value; i += 4)
        for (int j = i; j < i + 2; ++j) {
          probe[j % 2] += out(j);
          out(j) *= inverse;
        }
      const typename Base::Row row = Base::row_of(a, rows[r]);
      if (!row.used(a, tile)) continue;
      if (!isfinite(probe[0] + probe[1])) bad |= 1u << r;
      if (lane % 4 == 0) a.lse[row.place(a, tile)] = lse[r];
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
    const int column = (lane % kPieces) * 8;
    CUTE_UNROLL
    for (int i = 0; i < kPieces / 2; ++i) {
      const int index = base + i * (32 / kPieces) + lane / kPieces;
      const typename Base::Row row = Base::row_of(a, index);
      if (row.used(a, tile))
        *reinterpret_cast<uint4*>(static_cast<T*>(a.out) + row.place(a, tile) * DV + column) =
            *reinterpret_cast<const uint4*>(piece(index, column));
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
  // An offset, not a rounded address: the compiler then knows that accesses are to shared memory.
  const unsigned past = cute::cast_smem_ptr_to_uint(raw) % 1024;
  auto& s = *reinterpret_cast<typename Kernel::Shared*>(raw + (1024 - past) % 1024);
  if (threadIdx.x == 32 && a.num_keys > 0) {
    prefetch_tma_descriptor(&a.k_map);
    prefetch_tma_descriptor(&a.v_map);
  }
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    Barrier::init(&s.q_full, 1);
    for (int i = 0; i < kStages; ++i) {
      Barrier::init(&s.k_full[i], 1);
      Barrier::init(&s.v_full[i], 1);
      Barrier::init(&s.k_empty[i], 8);  // a lane of each computing warp
      Barrier::init(&s.v_empty[i], 8);
    }
    Barrier::init(&s.stored, 8);
    cutlass::arch::fence_barrier_init();
    s.redo = 0;
  }
  const auto tile = Kernel::tile_of(a);
  if (threadIdx.x == 0) Kernel::load_q(a, s, tile);
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    // 128 x (168 - 40) registers, of those a launch gives, go to 256 x (232 - 168).
    cutlass::arch::warpgroup_reg_dealloc<40>();
    if (threadIdx.x != 0) return;
    Kernel::produce(a, s, tile);
    Kernel::wait(s.stored, 0);  // every output is written
    if (s.redo != 0) Kernel::produce_again(a, s, tile);
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
  a.by_row_group = Divisor(a.row_group), a.by_stride = Divisor(p.rule.stride);
  if (kSelect) {
    a.selection = p.selection, a.by_sel_block = Divisor(p.selection.sel_block_size);
    a.strides = p.selection.sel_block_size / p.rule.stride;
    a.overlap = p.rule.extent / p.rule.stride - 1;
  }
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
