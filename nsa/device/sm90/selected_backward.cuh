// Selected attention, backward, in the order of keys, on wgmma.
//
// One CTA holds the 64 keys and values of an item's tile; the rows that attend the tile pass by in
// tiles of 64. A row is a (token, head of the group) pair, row = pair of the list * G + head, so
// any group size fills the tiles. Warpgroup 0 gathers rows of Q and d_out by cp.async, two more
// take alternate row tiles:
//   S^T = K Q^T, P^T = exp2(S^T - lse), dV += P^T dO, dP^T = V dO^T, dS^T = P^T (dP^T - delta),
//   dK += dS^T Q, and dQ = dS K, which goes to memory as one part of the rows' d_q.
// Keys are the rows of S^T, so that P^T and dS^T are A operands where they stand, in registers.
//
// Values that are not finite: probabilities of what a row does not attend are selected away, but
// 0 * NaN is NaN in the products over keys or rows. Keys, values and rows with such a value are
// therefore replaced by zeros in shared memory, and what attends them gets its NaN by selection.
#pragma once
#include "nsa/device/sm90/selected_backward_launch.h"
#include "nsa/device/sm90/selected_tiles.cuh"
#include "nsa/device/sm90/selected_values.cuh"

namespace nsa::device::sm90 {

template <int DK, int DV, typename T>
struct SelectedBackwardKernel {
  using Traits = ElementTraits<T>;
  static constexpr int kThreads = 384;
  // 128 x 40 + 256 x 232 or 128 x 72 + 256 x 216 of the 384 x 168 registers a launch gives.
  static constexpr int kProducerRegisters = DK + DV == 320 ? 40 : 72,
                       kConsumerRegisters = DK + DV == 320 ? 232 : 216;
  static constexpr int kStages = DK + DV == 320 ? 4 : DK + DV == 256 ? 5 : 8;
  // Rows of dP^T at a time: registers do not hold 64 beside the accumulators of 192/128.
  static constexpr int kRowsOfPart = DK + DV == 320 ? 32 : 64;

  using MmaScores =
      decltype(make_tiled_mma(GMMA::ss_op_selector<T, T, float, Shape<_64, _64, _64>>()));
  using MmaDProbs = decltype(make_tiled_mma(
      GMMA::ss_op_selector<T, T, float, Shape<_64, Int<kRowsOfPart>, _64>>()));
  template <int kColumns>
  using MmaKeys =
      decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<kColumns>, _64>,
                                                   GMMA::Major::K, GMMA::Major::MN>()));
  using MmaQueries = decltype(make_tiled_mma(
      GMMA::ss_op_selector<T, T, float, Shape<_64, _64, _64>, GMMA::Major::MN, GMMA::Major::MN>()));

  struct Ring {
    alignas(1024) T q[kStages][64 * DK];
    alignas(1024) T d_out[kStages][64 * DV];
  };
  struct Shared {
    alignas(1024) T k[64 * DK];
    alignas(1024) T v[64 * DV];
    Ring ring;                       // at the end: accumulators on their way to the other warpgroup
    alignas(1024) T ds[2][64 * 64];  // [key][row] of a warpgroup
    alignas(16) float2 stats[kStages][64];
    uint64_t masks[kStages][64];
    int32_t places[kStages][64];  // where a row's part of d_q goes (sm80/parts.cuh)
    uint64_t bad_k, bad_v;        // keys with a value that is not finite
    alignas(8) uint64_t keys_full, full[kStages], empty[kStages], sums_moved;
  };
  static_assert(sizeof(Ring) >= 64 * (DK + DV) * sizeof(float));
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;
  static_assert(kSharedBytes <= 232448);

  CUTE_DEVICE static void produce(const SelectedArguments& a, Shared& s, const SelectedWork& w) {
    copy_keys<DK, DV>(a, w, s.k, s.v);
    arrive_with_copies(s.keys_full);
    const int head = w.kv_head * a.group_size;
    const T* q = static_cast<const T*>(a.q.data) + w.batch * a.q.batch + head * a.q.head +
                 threadIdx.x % 8 * 8;
    const T* d_out = static_cast<const T*>(a.d_out.data) + w.batch * a.d_out.batch +
                     head * a.d_out.head + threadIdx.x % 8 * 8;
    const float2* stats = a.stats + int64_t(w.batch) * a.tokens_of_batch * a.num_heads + head;
    const RowStrides q_strides(a.q), d_out_strides(a.d_out);
    gather_rows<kStages, 2>(
        a, w, 0, s.full, s.empty,
        [&](bool of_second, int token, int in_group) {
          const RowStrides& x = of_second ? d_out_strides : q_strides;
          return token * x.token + in_group * x.head;
        },
        [&](int stage, int i, int tensor, int offset) {
          if (tensor == 0) {
            copy_row<DK>(s.ring.q[stage], i, q, offset);
          } else {
            copy_row<DV>(s.ring.d_out[stage], i, d_out, offset);
          }
        },
        [&](int stage, int row, uint32_t entry, int in_group, bool valid) {
          describe_row<DK>(a, w, s.masks[stage][row], s.places[stage][row], entry, in_group, valid);
          if (valid) {
            copy_async_8(sm80::shared_address(&s.stats[stage][row]),
                         stats + int64_t(entry >> 8) * a.num_heads + in_group);
          } else {
            s.stats[stage][row] = make_float2(0.f, 0.f);
          }
        });
  }

  /// Zeros in the place of keys and values that are not finite; their bits go to bad_k and bad_v.
  /// 256 threads.
  CUTE_DEVICE static void clear_bad_keys(Shared& s) {
    const int key = (threadIdx.x - 128) / 4, quarter = threadIdx.x % 4;
    const auto sweep = [&](T* tile, int pieces, auto&& visit) {
      for (int i = quarter; i < pieces; i += 4)
        visit(*reinterpret_cast<uint4*>(tile + piece_of_tile(key, i)));
    };
    bool bad_k = false, bad_v = false;
    sweep(s.k, DK / 8, [&](uint4& x) { bad_k |= not_finite<T>(x); });
    sweep(s.v, DV / 8, [&](uint4& x) { bad_v |= not_finite<T>(x); });
    if (bad_k) atomicOr(reinterpret_cast<unsigned long long*>(&s.bad_k), 1ull << key);
    if (bad_v) atomicOr(reinterpret_cast<unsigned long long*>(&s.bad_v), 1ull << key);
    cutlass::arch::NamedBarrier::sync(256, 3);
    if ((s.bad_k | s.bad_v) == 0) return;
    const auto clear = [&](uint4& x) { x = make_uint4(0, 0, 0, 0); };
    if (s.bad_k >> key & 1) sweep(s.k, DK / 8, clear);
    if (s.bad_v >> key & 1) sweep(s.v, DV / 8, clear);
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(256, 3);
  }

  /// Zeros in the place of rows whose statistics say so; one warpgroup.
  CUTE_DEVICE static void clear_bad_rows(Shared& s, int stage, int barrier) {
    const int row = threadIdx.x % 128 / 2;
    if (isnan(s.stats[stage][row].x)) {
      for (int i = threadIdx.x % 2; i < (DK + DV) / 8; i += 2) {
        T* tile = i < DK / 8 ? s.ring.q[stage] : s.ring.d_out[stage];
        const int piece = i < DK / 8 ? i : i - DK / 8;
        *reinterpret_cast<uint4*>(tile + piece / 8 * 4096 + row * 64 + piece % 8 * 8) =
            make_uint4(0, 0, 0, 0);
      }
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(128, barrier);
  }

  /// One warpgroup: every other row tile.
  CUTE_DEVICE static void consume(const SelectedArguments& a, Shared& s, const SelectedWork& w,
                                  int half) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const int steps = w.steps(a);
    MmaScores mma_scores;
    MmaDProbs mma_d_probs;
    MmaKeys<DK> mma_k;
    MmaKeys<DV> mma_v;
    MmaQueries mma_q;
    auto scores_thread = mma_scores.get_thread_slice(thread);
    auto d_probs_thread = mma_d_probs.get_thread_slice(thread);
    auto k_thread = mma_k.get_thread_slice(thread);
    auto v_thread = mma_v.get_thread_slice(thread);
    auto q_thread = mma_q.get_thread_slice(thread);
    Tensor frag_k =
        scores_thread.partition_fragment_A(make_tensor(make_smem_ptr(s.k), RowTile<T, DK>{}));
    Tensor frag_v =
        d_probs_thread.partition_fragment_A(make_tensor(make_smem_ptr(s.v), RowTile<T, DV>{}));
    Tensor frag_ds =
        q_thread.partition_fragment_A(make_tensor(make_smem_ptr(s.ds[half]), ColumnTile<T, 64>{}));
    Tensor d_k = partition_fragment_C(mma_k, Shape<_64, Int<DK>>{});
    Tensor d_v = partition_fragment_C(mma_v, Shape<_64, Int<DV>>{});
    // P^T, then dS^T, as the A operand: the accumulators' order, packed in pairs.
    Tensor probs = make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, _4>>{});
    Tensor d_scores = make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, _4>>{});
    Tensor probs_bits = recast<uint32_t>(probs);
    Tensor d_scores_bits = recast<uint32_t>(d_scores);
    clear(d_k);
    clear(d_v);

    wait_for(s.keys_full, 0);
    clear_bad_keys(s);
    const int own_key = warp * 16 + lane / 4;  // and own_key + 8

    for (int step = half; step < steps; step += 2) {
      const int stage = step % kStages;
      wait_for(s.full[stage], (step / kStages) & 1);
      const bool nan_row = isnan(s.stats[stage][lane].x) || isnan(s.stats[stage][lane + 32].x);
      const bool whole =
          __all_sync(~0u, (s.masks[stage][lane] & s.masks[stage][lane + 32]) == ~0ull);
      if (__any_sync(~0u, nan_row)) clear_bad_rows(s, stage, 1 + half);
      cutlass::arch::fence_view_async_shared();  // what the copies wrote -> products

      Tensor scores = partition_fragment_C(mma_scores, Shape<_64, _64>{});
      warpgroup_fence_operand(scores);
      warpgroup_arrive();
      multiply(mma_scores, frag_k,
               scores_thread.partition_fragment_B(
                   make_tensor(make_smem_ptr(s.ring.q[stage]), RowTile<T, DK>{})),
               scores, GMMA::ScaleOut::Zero);
      warpgroup_commit_batch();

      // Bit i of `attended`: value i of the accumulators.
      uint32_t attended = ~0u;
      if (!whole) {
        attended = 0;
        CUTE_UNROLL
        for (int i = 0; i < 16; ++i) {
          const uint64_t mask = s.masks[stage][i / 2 * 8 + (lane % 4) * 2 + i % 2] >> own_key;
          attended |= (static_cast<uint32_t>(mask) & 1) << (i / 2 * 4 + i % 2);
          attended |= (static_cast<uint32_t>(mask >> 8) & 1) << (i / 2 * 4 + i % 2 + 2);
        }
      }
      int32_t places[2];  // of this thread's rows of dQ
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) places[r] = s.places[stage][warp * 16 + lane / 4 + 8 * r];
      const float4* stats =
          reinterpret_cast<const float4*>(&s.stats[stage][(lane % 4) * 2]);  // of two rows
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      CUTE_UNROLL
      for (int j = 0; j < 8; ++j) {
        const float4 two = stats[j * 4];
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i) {
          float& p = scores(4 * j + i);
          p = exp2_fast(fmaf(p, a.scale_log2, i % 2 ? -two.z : -two.x));
        }
      }
      if (attended != ~0u) select(scores, attended, 0);
      if (s.bad_k != 0) spoil(scores, attended, 0, s.bad_k >> own_key);
      pack_pairs<typename Traits::Cuda>(scores, probs_bits, 0);

      const auto start_d_probs = [&](int part, auto& d_probs) {
        warpgroup_fence_operand(d_probs);
        warpgroup_arrive();
        Tensor rows = make_tensor(make_smem_ptr(s.ring.d_out[stage]), RowTile<T, DV>{});
        multiply(mma_d_probs, frag_v,
                 d_probs_thread.partition_fragment_B(
                     local_tile(rows, Shape<Int<kRowsOfPart>, Int<DV>>{}, make_coord(part, 0))),
                 d_probs, GMMA::ScaleOut::Zero);
        warpgroup_commit_batch();
      };
      const auto finish_d_probs = [&](int part, auto& d_probs) {
        warpgroup_fence_operand(d_probs);
        CUTE_UNROLL
        for (int j = 0; j < kRowsOfPart / 8; ++j) {
          const float4 two = stats[(part * kRowsOfPart / 8 + j) * 4];
          CUTE_UNROLL
          for (int r = 0; r < 2; ++r) {
            const float2 p = Traits::unpack(probs_bits(part * kRowsOfPart / 4 + 2 * j + r));
            d_probs(4 * j + 2 * r) = p.x * (d_probs(4 * j + 2 * r) - two.y);
            d_probs(4 * j + 2 * r + 1) = p.y * (d_probs(4 * j + 2 * r + 1) - two.w);
          }
        }
        if (attended != ~0u) select(d_probs, attended, part * kRowsOfPart / 2);
        if ((s.bad_k | s.bad_v) != 0)
          spoil(d_probs, attended, part * kRowsOfPart / 2, (s.bad_k | s.bad_v) >> own_key);
        pack_pairs<typename Traits::Cuda>(d_probs, d_scores_bits, part * kRowsOfPart / 4);
      };
      Tensor d_probs = partition_fragment_C(mma_d_probs, Shape<_64, Int<kRowsOfPart>>{});
      warpgroup_fence_operand(probs);
      warpgroup_fence_operand(d_v);
      start_d_probs(0, d_probs);
      multiply(mma_v, probs,
               v_thread.partition_fragment_B(
                   make_tensor(make_smem_ptr(s.ring.d_out[stage]), ColumnTile<T, DV>{})),
               d_v, GMMA::ScaleOut::One);
      warpgroup_commit_batch();
      warpgroup_wait<1>();
      finish_d_probs(0, d_probs);
      if constexpr (kRowsOfPart < 64) {
        start_d_probs(1, d_probs);
        warpgroup_wait<0>();
        finish_d_probs(1, d_probs);
      }

      // dS to shared memory, [key][row]; the products that read the last one are done.
      cutlass::arch::NamedBarrier::sync(128, 1 + half);
      {
        const int key = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
        const uint32_t to = sm80::shared_address(s.ds[half]) + key * 128;
        CUTE_UNROLL
        for (int i = 0; i < 4; ++i)
          store_matrices(to + ((2 * i + lane / 16) ^ (key % 8)) * 16, d_scores_bits(4 * i),
                         d_scores_bits(4 * i + 1), d_scores_bits(4 * i + 2),
                         d_scores_bits(4 * i + 3));
      }
      cutlass::arch::fence_view_async_shared();
      cutlass::arch::NamedBarrier::sync(128, 1 + half);

      // d_k, and d_q by 64 columns: a part goes to memory while the next is computed.
      Tensor d_q = partition_fragment_C(mma_q, Shape<_64, _64>{});
      const auto start_d_q = [&](int c) {
        warpgroup_fence_operand(d_q);
        warpgroup_arrive();
        multiply(mma_q, frag_ds,
                 q_thread.partition_fragment_B(
                     make_tensor(make_smem_ptr(s.k + c * 4096), ColumnTile<T, 64>{})),
                 d_q, GMMA::ScaleOut::Zero);
        warpgroup_commit_batch();
      };
      warpgroup_fence_operand(d_k);
      warpgroup_fence_operand(d_scores);
      warpgroup_arrive();
      multiply(mma_k, d_scores,
               k_thread.partition_fragment_B(
                   make_tensor(make_smem_ptr(s.ring.q[stage]), ColumnTile<T, DK>{})),
               d_k, GMMA::ScaleOut::One);
      warpgroup_commit_batch();
      warpgroup_wait<0>();
      warpgroup_fence_operand(d_k);
      warpgroup_fence_operand(d_v);
      // Every thread, as each has read statistics. The branch is always taken: a basic block that
      // ends here saves 192/128 a spill.
      int taken = lane;
      asm volatile("" : "+r"(taken));
      if (taken >= 0) arrive_at(s.empty[stage]);
      start_d_q(0);
      CUTE_UNROLL
      for (int c = 0; c < DK / 64; ++c) {
        warpgroup_wait<0>();
        warpgroup_fence_operand(d_q);
        store_part<typename Traits::Cuda>(a.parts, places, c * 64, a.scale, d_q, 0);
        if (c + 1 < DK / 64) start_d_q(c + 1);
      }
    }
    hand_over(a, s, w, half, d_k, d_v);
  }

  /// Sums of the two warpgroups: the first finishes d_k, the second d_v.
  template <class Keys, class Values>
  CUTE_DEVICE static void hand_over(const SelectedArguments& a, Shared& s, const SelectedWork& w,
                                    int half, Keys& d_k, Values& d_v) {
    const int thread = threadIdx.x % 128;
    float* other = reinterpret_cast<float*>(&s.ring) + thread;
    float* slot =
        a.slots + (int64_t(w.lane - a.lane) * a.items_of_lane + w.slot) * (64 * (DK + DV)) + thread;
    constexpr int kOfKeys = DK / 2, kOfValues = DV / 2;  // values of a thread
    cutlass::arch::NamedBarrier::sync(256, 3);           // nobody reads the ring any more
    if (half == 0) {
      CUTE_UNROLL
      for (int i = 0; i < kOfValues; ++i) other[(kOfKeys + i) * 128] = d_v(i);
    } else {
      CUTE_UNROLL
      for (int i = 0; i < kOfKeys; ++i) other[i * 128] = d_k(i);
    }
    arrive_at(s.sums_moved);
    wait_for(s.sums_moved, 0);
    if (half == 0) {
      CUTE_UNROLL
      for (int i = 0; i < kOfKeys; ++i) slot[i * 128] = (d_k(i) + other[i * 128]) * a.scale;
    } else {
      CUTE_UNROLL
      for (int i = 0; i < kOfValues; ++i)
        slot[(kOfKeys + i) * 128] = d_v(i) + other[(kOfKeys + i) * 128];
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    selected_backward_kernel(const __grid_constant__ SelectedArguments a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ char raw[];
  // Aligned without a detour through integers, so that the compiler knows it for shared memory.
  auto& s = *reinterpret_cast<typename Kernel::Shared*>(raw + (-sm80::shared_address(raw) & 1023));
  SelectedWork w;
  if (!w.find(a)) return;
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    Barrier::init(&s.keys_full, 256);
    Barrier::init(&s.sums_moved, 256);
    for (int i = 0; i < Kernel::kStages; ++i) {
      Barrier::init(&s.full[i], 256);
      Barrier::init(&s.empty[i], 128);  // the warpgroup that reads the stage
    }
    cutlass::arch::fence_barrier_init();
    s.bad_k = s.bad_v = 0;
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<Kernel::kProducerRegisters>();
    Kernel::produce(a, s, w);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Kernel::kConsumerRegisters>();
    Kernel::consume(a, s, w, warpgroup - 1);
  }
#endif
}

template <int DK, int DV, typename T>
cudaError_t launch_selected_backward(const SelectedBackward& p, int tokens_of_batch,
                                     const SelectedPlan& plan, void* workspace, int set,
                                     cudaStream_t stream) {
  using Kernel = SelectedBackwardKernel<DK, DV, T>;
  SelectedArguments a = selected_arguments(p, plan, workspace, set);
  a.d_out = p.d_out;
  a.stats = reinterpret_cast<const float2*>(p.stats);
  a.tokens_of_batch = tokens_of_batch;
  return launch_items<Kernel>(selected_backward_kernel<Kernel>, a, plan, stream);
}

}  // namespace nsa::device::sm90
