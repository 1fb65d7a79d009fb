// Interval attention, forward, on wgmma and TMA.
//
// A tile is 128 rows (192 at dk 64) of a KV head; a row is a (token, head of the group) pair, row =
// token * G + head, so K and V are read once for all heads of a group. A CTA takes tile after tile:
// warpgroup 0 feeds shared memory by TMA, the others compute 64 rows each. Within a step the
// products of the next keys and of these keys' V are in flight while the softmax runs. What
// follows: the choice of blocks (direct_selection.cuh, selection_pass.cuh); in the end tiles that
// are not finite (interval_repair.cuh).
#pragma once
#include <algorithm>
#include <type_traits>

#include <cutlass/arch/reg_reconfig.h>

#include "nsa/kernels/common/sm90/launch.cuh"
#include "nsa/kernels/common/sm90/online_softmax.cuh"
#include "nsa/kernels/common/sm90/tensor_map.h"
#include "nsa/kernels/interval/sm90/direct_selection.cuh"
#include "nsa/kernels/interval/sm90/interval_repair.cuh"
#include "nsa/kernels/interval/sm90/interval_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalKernel : IntervalTiles<DK, DV, BN, T, kSelect> {
  using Base = IntervalTiles<DK, DV, BN, T, kSelect>;
  using typename Base::Loads, typename Base::Rows, typename Base::Shared, typename Base::Tile;
  using typename Base::RowWords, typename Base::Steps, typename Base::Scheduler;
  /// Three computing warpgroups have not the registers for the direct one.
  using Selection = std::conditional_t<Base::kWarpgroups == 2, DirectSelection<DK, DV, BN, T>,
                                       SelectionPass<DK, DV, BN, T>>;

  /// One warpgroup: 64 rows of every tile.
  CUTE_DEVICE static void consume(const IntervalArguments& a, Shared& s, int half) {
    Loads loads;
    const Scheduler scheduler(half);
    CUTE_NO_UNROLL
    for (; Base::unit_of(loads.q()) < a.units; loads.add_q()) {
      auto out = Base::out_fragment();
      OnlineSoftmax softmax;
      clear(out);
      Base::wait(s.q_full, loads.q() & 1);
      {
        const int i = loads.q();
        const Tile tile = Base::tile_of(a, Base::unit_of(i));
        const Rows rows = Base::rows_of(a, tile, half);
        typename Base::Steps steps(tile);
        const RowWords words(a, s, tile, rows, i % 2);
        if (Base::kWords && a.ranges != nullptr) {
          Base::wait_words(s, i);
          steps.take_words(s, i % 2);
          words.begin(softmax);
        }
        if (steps.count > 0) {
          attend(a, s, steps, half, rows, words, scheduler, loads, softmax, out);
        } else if (!kSelect) {
          __syncwarp();  // all lanes have seen Q: the next one may come
          Base::release_q(s);
        }
        if (Base::kWords && a.ranges != nullptr) Base::arrive(s.words_empty[i % 2]);
      }
      const int i = loads.q();
      const Tile tile = Base::tile_again(a, i);
      const Rows rows = Base::rows_of(a, tile, half);
      softmax.finish();
      float lse[2];
      const bool finite = store(a, tile, out, softmax, rows.index, lse);
      if (!finite) atomicOr(&s.redo[i / 32], 1u << i % 32);
      if constexpr (kSelect) Selection::run(a, s, tile, half, rows, lse, scheduler, loads);
    }
    scheduler.end();
    cutlass::arch::NamedBarrier::sync(Base::kConsumers, kTilesStored);
    if (threadIdx.x % 32 == 0) Base::arrive(s.stored);
    for_tiles_to_redo(a, s, [&](int tile) {
      IntervalRepair<DK, DV, BN, T, kSelect>::redo(a, s, tile, half, loads);
    });
  }
  /// The thread that loads.
  CUTE_DEVICE static void produce_all(const IntervalArguments& a, Shared& s) {
    Loads loads;
    loads.add_q();
    Base::produce(a, s, loads);
    Base::wait(s.stored, 0);  // every output is written
    for_tiles_to_redo(a, s, [&](int i) { Base::produce_again(a, s, i, loads); });
  }
  template <class Redo>
  CUTE_DEVICE static void for_tiles_to_redo(const IntervalArguments& a, const Shared& s,
                                            const Redo& redo) {
    CUTE_NO_UNROLL
    for (int first = 0; Base::unit_of(first) < a.units; first += 32) {
      CUTE_NO_UNROLL
      for (uint32_t left = s.redo[first / 32]; left != 0; left &= left - 1)
        redo(first + __ffs(static_cast<int>(left)) - 1);
    }
  }

  template <class Out>
  CUTE_DEVICE static void attend(const IntervalArguments& a, Shared& s, Steps& steps, int half,
                                 const Rows& rows, const RowWords& words,
                                 const Scheduler& scheduler, Loads& loads, OnlineSoftmax& softmax,
                                 Out& out) {
    auto scores = Base::scores_fragment();
    auto probs = Base::probs_fragment();
    const bool leads = threadIdx.x % 32 == 0;  // its warp
    const auto start_scores = [&] {
      Base::wait(s.k_full[Base::stage_of(loads.k())], Base::phase_of(loads.k()));
      scheduler.await();
      Base::multiply_scores(s, half, Base::stage_of(loads.k()), scores);
    };
    const auto start_out = [&] {
      Base::wait(s.v_full[Base::stage_of(loads.v())], Base::phase_of(loads.v()));
      Base::multiply_out(s, Base::stage_of(loads.v()), probs, out);
    };
    const auto scores_ready = [&](int step) {
      warpgroup_fence_operand(scores);
      if (leads) Base::arrive(s.k_empty[Base::stage_of(loads.k())]);
      loads.add_k(1);
      if (!kSelect && step + 1 == steps.count) Base::release_q(s);
      const int key = steps.next_key();
      if (Base::kWords && a.ranges != nullptr) {
        Base::mask_tiles(rows, words, key, scores);
      } else {
        Base::mask(rows, key, scores);
      }
      softmax.step(scores, a.scale_log2);
    };
    const auto out_ready = [&] {
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      if (leads) Base::arrive(s.v_empty[Base::stage_of(loads.v())]);
      loads.add_v();
    };

    start_scores();
    scheduler.pass();
    warpgroup_wait<0>();
    scores_ready(0);
    Base::pack(scores, probs);
    for (int step = 1; step < steps.count; ++step) {
      start_scores();
      start_out();
      scheduler.pass();
      warpgroup_wait<1>();
      scores_ready(step);
      out_ready();
      softmax.rescale_rows(out);
      Base::pack(scores, probs);
    }
    start_out();
    out_ready();
  }

  /// Output and lse to memory; whether all of it is finite. The lanes of a quad exchange their
  /// columns, so that each writes 16 bytes and the quad 64 of a row.
  template <typename Out>
  CUTE_DEVICE static bool store(const IntervalArguments& a, const Tile& tile, Out& out,
                                const OnlineSoftmax& softmax, const int (&rows)[2],
                                float (&lse)[2]) {
    const int lane = threadIdx.x % 4;
    bool finite = true;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float inverse = softmax.sum[r] == 0.f ? 0.f : 1.f / softmax.sum[r];
      lse[r] = softmax.sum[r] == 0.f
                   ? -INFINITY
                   : (softmax.peak[r] * a.scale_log2 + log2f(softmax.sum[r])) / kLog2e;
      const typename Base::Row row = Base::row_of(a, rows[r]);
      const bool used = row.used(a, tile);
      const int64_t place = row.place(a, tile);
      if (used && lane == 0) a.lse[place] = lse[r];
      uint4* const to = reinterpret_cast<uint4*>(static_cast<T*>(a.out) + place * DV) + lane;
      float probe[2] = {};  // what is not finite stays so in a sum
      CUTE_UNROLL
      for (int c = 0; c < DV / 32; ++c) {
        uint32_t four[4];  // this lane's columns of four times eight
        CUTE_UNROLL
        for (int j = 0; j < 4; ++j) {
          const int i = (c * 4 + j) * 4 + 2 * r;
          probe[0] += out(i), probe[1] += out(i + 1);
          T pair[2] = {T(out(i) * inverse), T(out(i + 1) * inverse)};
          four[j] = *reinterpret_cast<uint32_t*>(pair);
        }
        exchange_in_quad(four);
        if (used) to[c * 4] = make_uint4(four[0], four[1], four[2], four[3]);
      }
      if (used && !isfinite(probe[0] + probe[1])) finite = false;
    }
    return finite;
  }
  /// x[j] of lane i of a quad becomes x[i] of lane j.
  CUTE_DEVICE static void exchange_in_quad(uint32_t (&x)[4]) {
    CUTE_UNROLL
    for (int bit = 1; bit <= 2; bit *= 2) {
      const bool high = threadIdx.x & bit;
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (i & bit) continue;
        const uint32_t given = __shfl_xor_sync(~0u, high ? x[i] : x[i + bit], bit);
        x[i] = high ? given : x[i];
        x[i + bit] = high ? x[i + bit] : given;
      }
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    interval_attention_kernel(const __grid_constant__ IntervalArguments a) {
#if NSA_CODE_OF_SM90
  NSA_UNALIGNED_SHARED(raw);
  // An offset, not a rounded address: the compiler then knows that accesses are to shared memory.
  const unsigned past = cute::cast_smem_ptr_to_uint(raw) % 1024;
  auto& s = *reinterpret_cast<typename Kernel::Shared*>(raw + (1024 - past) % 1024);
  if (threadIdx.x == 32 && a.num_keys > 0) {
    prefetch_tma_descriptor(&a.k_map);
    prefetch_tma_descriptor(&a.v_map);
  }
  if (threadIdx.x < kMostTilesOfCta / 32) s.redo[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    constexpr int kWarps = Kernel::kConsumers / 32;
    Barrier::init(&s.q_full, 1);
    Barrier::init(&s.q_empty, Kernel::kReleasesOfQ);
    for (int i = 0; i < Kernel::kStages; ++i) {
      Barrier::init(&s.k_full[i], 1);
      Barrier::init(&s.v_full[i], 1);
      Barrier::init(&s.k_empty[i], kWarps);  // a lane of each computing warp
      Barrier::init(&s.v_empty[i], kWarps);
    }
    Barrier::init(&s.stored, kWarps);
    if (Kernel::kWords) {
      for (int i = 0; i < 2; ++i) {
        Barrier::init(&s.words_full[i], 96);
        Barrier::init(&s.words_empty[i], Kernel::kConsumers + 1);
      }
    }
    cutlass::arch::fence_barrier_init();
    typename Kernel::Loads none;
    Kernel::load_q(a, s, 0, none);
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    // Registers that loading does not need go to those that compute.
    cutlass::arch::warpgroup_reg_dealloc<Kernel::kProducerRegisters>();
    if (threadIdx.x == 0) Kernel::produce_all(a, s);
    if (Kernel::kWords && threadIdx.x >= 32 && a.ranges != nullptr) Kernel::produce_words(a, s);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Kernel::kConsumerRegisters>();
    Kernel::consume(a, s, warpgroup - 1);
  }
#endif
}

template <int DK, int DV, int BN, typename T, bool kSelect = false>
cudaError_t launch_interval_attention(const IntervalAttention& p, const TileRanges& ranges,
                                      cudaStream_t stream) {
  using Kernel = IntervalKernel<DK, DV, BN, T, kSelect>;
  const int group = p.num_heads / p.num_kv_heads;
  IntervalArguments a{};
  a.q = p.q, a.k = p.k, a.v = p.v, a.out = p.out, a.lse = p.lse;
  a.num_queries = p.num_queries, a.num_keys = p.num_keys, a.num_heads = p.num_heads,
  a.group_size = group;
  a.row_group = group;
  if (kSelect)
    for (a.row_group = 1; a.row_group < group;) a.row_group *= 2;
  a.tokens_per_tile = Kernel::kRows / a.row_group, a.first_position = p.first_position,
  a.rule = p.rule;
  a.by_row_group = Divisor(a.row_group), a.by_stride = Divisor(p.rule.stride);
  if (kSelect) {
    a.selection = p.selection, a.by_sel_block = Divisor(p.selection.sel_block_size);
    a.strides = p.selection.sel_block_size / p.rule.stride;
    a.overlap = p.rule.extent / p.rule.stride - 1;
  }
  const int tiles = p.documents != nullptr
                        ? p.num_document_tiles
                        : (p.num_queries + a.tokens_per_tile - 1) / a.tokens_per_tile;
  a.documents = p.documents;
  const int64_t units = int64_t{tiles} * p.num_kv_heads * p.batch;
  if (units > INT32_MAX) return cudaErrorInvalidValue;
  a.tiles = tiles, a.units = static_cast<int>(units);
  a.by_all_heads = Divisor(p.num_kv_heads * p.batch), a.by_kv_heads = Divisor(p.num_kv_heads);
  a.apart = Kernel::shared_bytes(a.tokens_per_tile, true) <= Kernel::kMostSharedBytes;
  const int bytes = Kernel::shared_bytes(a.tokens_per_tile, a.apart);
  a.ranges = reinterpret_cast<const int2*>(ranges.ranges), a.num_ranges = ranges.num_ranges;
  for (a.lanes_of_ranges = 1; a.lanes_of_ranges < std::min(a.num_ranges, 32);)
    a.lanes_of_ranges *= 2;
  a.tokens_of_batch = ranges.ranges == nullptr ? p.num_queries : ranges.tokens_of_batch;
  a.scale_log2 = p.scale * kLog2e;
  const bool half = p.element == nsa::kernels::Element::kHalf;
  const auto map = [&](CUtensorMap& m, const Strided& x, int dim, int heads, int tokens,
                       int box_heads, int box_tokens) {
    return make_tensor_map(m, x.data, half, dim, heads, tokens, p.batch, x.head, x.token, x.batch,
                           box_heads, box_tokens);
  };
  cudaError_t status =
      map(a.q_map, p.q, DK, p.num_heads, p.num_queries, a.row_group, a.tokens_per_tile);
  if (p.num_keys > 0) {  // without keys nothing is loaded through the other maps
    if (status == cudaSuccess) status = map(a.k_map, p.k, DK, p.num_kv_heads, p.num_keys, 1, BN);
    if (status == cudaSuccess) status = map(a.v_map, p.v, DV, p.num_kv_heads, p.num_keys, 1, BN);
  }
  if (status != cudaSuccess) return status;
  int device = 0, sms = 0;
  status = cudaGetDevice(&device);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  const auto kernel = interval_attention_kernel<Kernel>;
  // A CTA an SM, or as many times that as tiles ask for.
  const int most = sms * kMostTilesOfCta, ctas = (a.units + most - 1) / most * sms;
  return portable::launch(kernel, std::min(ctas, a.units), Kernel::kThreads, bytes, stream, a);
}

}  // namespace nsa::kernels::sm90
