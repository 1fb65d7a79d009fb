// Selected attention, forward, in the order of keys, on wgmma: parts of the rows' outputs, one a
// key tile, with the maximum and sum of their softmax; selected_dense or selected_join joins them.
//
// Warpgroup 0 gathers rows of Q by cp.async, three more take row tiles alternately:
//   S = Q K^T, P = exp2(S - max), O = P V.
// A CTA takes items from a counter until none is left; keys and values of the next one are loaded
// while the last row tiles of this one are computed. Which CTA has an item changes no bit.
//
// Values that are not finite: a probability of 0 times a NaN of V is NaN. Such elements of V become
// 0 in shared memory; the rows that attend them get them added at the end.
#pragma once
#include <type_traits>

#include "nsa/kernels/selected/sm90/selected_forward_launch.h"
#include "nsa/kernels/selected/sm90/selected_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, typename T>
struct SelectedForwardKernel {
  using Cuda = typename ElementTraits<T>::Cuda;
  static constexpr int kWarpgroups = 3;  // that compute
  static constexpr int kThreads = 128 * (1 + kWarpgroups);
  // 128 x 56 + 384 x 152 of the 512 x 128 registers a launch gives.
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 152;
  static constexpr int kStages = DK == 192 ? 5 : 8;
  /// Parts may leave the L2 cache before rows of Q, which it is to hold: where that was timed.
  static constexpr bool kOnce = DK == 192 && std::is_same_v<T, cutlass::bfloat16_t>;
  using MmaScores =
      decltype(make_tiled_mma(GMMA::ss_op_selector<T, T, float, Shape<_64, _64, _64>>()));
  using MmaOut = decltype(make_tiled_mma(GMMA::rs_op_selector<T, T, float, Shape<_64, Int<DV>, _64>,
                                                              GMMA::Major::K, GMMA::Major::MN>()));

  struct Shared {
    alignas(1024) T k[2][64 * DK];  // of an item and the next
    alignas(1024) T v[2][64 * DV];
    alignas(1024) T q[kStages][64 * DK];
    uint64_t masks[kStages][64];
    int32_t places[kStages][64];  // where a row's part goes (selected/parts.cuh)
    SelectedWork work[2];         // an item of no rows: there are none left
    uint64_t bad_v[2];            // keys with a value that is not finite
    alignas(8) uint64_t keys_full[2], keys_empty[2], full[kStages], empty[kStages];
  };
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;
  static_assert(kSharedBytes <= 232448);

  CUTE_DEVICE static void produce(const SelectedArguments& a, Shared& s) {
    ItemQueue queue(a);
    int steps = 0;
    for (int n = 0;; ++n) {
      const int buffer = n % 2;
      wait_for(s.keys_empty[buffer], (n / 2 + 1) & 1);
      if (threadIdx.x == 0) {
        s.work[buffer] = queue.take(a);
        s.bad_v[buffer] = 0;
      }
      cutlass::arch::NamedBarrier::sync(128, 0);
      const SelectedWork w = s.work[buffer];
      if (w.item.count > 0) copy_keys<DK, DV>(a, w, s.k[buffer], s.v[buffer]);
      arrive_with_copies(s.keys_full[buffer]);
      if (w.item.count == 0) return;
      gather(a, s, w, steps);
      steps += w.steps(a);
    }
  }

  /// The rows of an item, whose first row tile is the CTA's `done`-th.
  CUTE_DEVICE static void gather(const SelectedArguments& a, Shared& s, const SelectedWork& w,
                                 int done) {
    const T* q = static_cast<const T*>(a.q.data) + w.batch * a.q.batch +
                 w.kv_head * a.group_size * a.q.head + threadIdx.x % 8 * 8;
    const RowStrides strides(a.q);
    gather_rows<kStages, 1>(
        a, w, done, w.steps(a), s.full, s.empty,
        [&](bool, int token, int in_group) {
          return token * strides.token + in_group * strides.head;
        },
        [&](int stage, int i, int, int offset) {
          copy_row<DK, false>(s.q[stage], threadIdx.x, i, q, offset);
        },
        [&](int stage, int row, uint32_t entry, int in_group, bool valid) {
          describe_row<DV>(a, w, s.masks[stage][row], s.places[stage][row], entry, in_group, valid);
        });
  }

  /// Zeros in the place of values that are not finite; their keys' bits go to bad_v. Every
  /// warpgroup looks at all values, so that all agree on whether there is one.
  CUTE_DEVICE static void clear_bad_values(Shared& s, int buffer, int own) {
    const auto piece_at = [&](int i) { return s.v[buffer] + piece_of_tile(i % 64, i / 64); };
    bool found = false;
    for (int i = threadIdx.x % 128; i < 64 * DV / 8; i += 128)
      found |= not_finite<T>(*reinterpret_cast<const uint4*>(piece_at(i)));
    if (!any_of_warpgroup(found, 2 + own)) return;
    cutlass::arch::NamedBarrier::sync(128 * kWarpgroups, 1);  // all have looked
    for (int i = threadIdx.x - 128; i < 64 * DV / 8; i += 128 * kWarpgroups) {
      T* piece = piece_at(i);
      if (!not_finite<T>(*reinterpret_cast<const uint4*>(piece))) continue;
      atomicOr(reinterpret_cast<unsigned long long*>(&s.bad_v[buffer]), 1ull << i % 64);
      for (int j = 0; j < 8; ++j)
        if (!isfinite(float(piece[j]))) piece[j] = T(0.f);
    }
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(128 * kWarpgroups, 1);
  }

  /// Adds to a thread's two rows what clear_bad_values took away.
  template <class Out>
  CUTE_DEVICE static void add_bad_values(const SelectedArguments& a, const SelectedWork& w,
                                         uint64_t bad, const uint64_t (&masks)[2], Out& out) {
    const T* v = static_cast<const T*>(a.v.data) + w.batch * a.v.batch + w.kv_head * a.v.head;
    for (; bad != 0; bad &= bad - 1) {
      const int key = __ffsll(static_cast<long long>(bad)) - 1;
      const T* row = v + (int64_t(w.item.tile) * 64 + key) * a.v.token;
      CUTE_UNROLL
      for (int i = 0; i < size(out); ++i) {
        const float value = float(row[i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2]);
        if (!isfinite(value) && (masks[i / 2 % 2] >> key & 1)) out(i) += value;
      }
    }
  }

  /// One warpgroup: every kWarpgroups-th row tile.
  CUTE_DEVICE static void consume(const SelectedArguments& a, Shared& s, int own) {
    int end = 0, step = own;  // row tiles of all items so far, the next one of the warpgroup
    for (int n = 0;; ++n) {
      const int buffer = n % 2;
      wait_for(s.keys_full[buffer], n / 2 & 1);
      const SelectedWork& w = s.work[buffer];
      if (w.item.count == 0) return;
      end += w.steps(a);
      clear_bad_values(s, buffer, own);
      attend(a, s, buffer, step, end);
      arrive_at(s.keys_empty[buffer]);
    }
  }
  /// The warpgroup's row tiles of an item, from the CTA's `step`-th on and below `end`.
  CUTE_DEVICE static void attend(const SelectedArguments& a, Shared& s, int buffer, int& step,
                                 int end) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    MmaScores mma_scores;
    MmaOut mma_out;
    auto scores_thread = mma_scores.get_thread_slice(thread);
    auto out_thread = mma_out.get_thread_slice(thread);
    // Probabilities as the A operand: the accumulators' order, packed in pairs.
    Tensor probs = make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, _4>>{});
    Tensor probs_bits = recast<uint32_t>(probs);

    for (; step < end; step += kWarpgroups) {
      int which = buffer;
      asm volatile("" : "+r"(which));  // or descriptors of all products stay in registers
      Tensor frag_k = scores_thread.partition_fragment_B(
          make_tensor(make_smem_ptr(s.k[which]), RowTile<T, DK>{}));
      Tensor frag_v = out_thread.partition_fragment_B(
          make_tensor(make_smem_ptr(s.v[which]), ColumnTile<T, DV>{}));
      const int stage = step % kStages;
      wait_for(s.full[stage], (step / kStages) & 1);
      cutlass::arch::fence_view_async_shared();  // what the copies wrote -> products
      Tensor scores = partition_fragment_C(mma_scores, Shape<_64, _64>{});
      warpgroup_fence_operand(scores);
      warpgroup_arrive();
      multiply(mma_scores,
               scores_thread.partition_fragment_A(
                   make_tensor(make_smem_ptr(s.q[stage]), RowTile<T, DK>{})),
               frag_k, scores, GMMA::ScaleOut::Zero);
      warpgroup_commit_batch();
      int32_t places[2];
      uint64_t masks[2];
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        places[r] = s.places[stage][warp * 16 + lane / 4 + 8 * r];
        masks[r] = s.masks[stage][warp * 16 + lane / 4 + 8 * r];
      }
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      arrive_at(s.empty[stage]);

      if ((masks[0] & masks[1]) != ~0ull) {
        CUTE_UNROLL
        for (int i = 0; i < size(scores); ++i)
          if (!(masks[i / 2 % 2] >> (i / 4 * 8 + lane % 4 * 2 + i % 2) & 1)) scores(i) = -INFINITY;
      }
      float peak[2], sum[2];
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        float top = -INFINITY;
        CUTE_UNROLL
        for (int i = 2 * r; i < size(scores); i += 4)
          top = fmaxf(top, fmaxf(scores(i), scores(i + 1)));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        peak[r] = top;
        const float shift = top == -INFINITY ? 0.f : top;
        float total = 0.f;
        CUTE_UNROLL
        for (int j = 0; j < 8; ++j) {
          // Subtracted first: the product of a large maximum with the scale would be rounded.
          const float x = exp2_fast((scores(4 * j + 2 * r) - shift) * a.scale_log2),
                      y = exp2_fast((scores(4 * j + 2 * r + 1) - shift) * a.scale_log2);
          total += x + y;
          probs_bits(2 * j + r) = portable::pack<Cuda>(x, y);
        }
        total += __shfl_xor_sync(~0u, total, 1);
        sum[r] = total + __shfl_xor_sync(~0u, total, 2);
      }

      Tensor out = partition_fragment_C(mma_out, Shape<_64, Int<DV>>{});
      warpgroup_fence_operand(out);
      warpgroup_fence_operand(probs);
      warpgroup_arrive();
      multiply(mma_out, probs, frag_v, out, GMMA::ScaleOut::Zero);
      warpgroup_commit_batch();
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        if (lane % 4 == 0 && places[r] >= 0)
          a.part_stats[portable::row_of_part(places[r], DV)] = make_float2(peak[r], sum[r]);
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      if (s.bad_v[buffer] != 0) add_bad_values(a, s.work[buffer], s.bad_v[buffer], masks, out);
      CUTE_UNROLL
      for (int c = 0; c < DV / 64; ++c) {
        CUTE_UNROLL
        for (int r = 0; r < 2; ++r) {
          uint4 pieces[2];
          pack_part<Cuda>(pieces, 1.f, out, c * 32 + r * 2);
          store_part<kOnce>(a.parts, places[r], c * 64, pieces);
        }
      }
    }
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    selected_forward_kernel(const __grid_constant__ SelectedArguments a) {
#if NSA_CODE_OF_SM90
  NSA_UNALIGNED_SHARED(raw);
  // Aligned without a detour through integers, so that the compiler knows it for shared memory.
  auto& s =
      *reinterpret_cast<typename Kernel::Shared*>(raw + (-portable::shared_address(raw) & 1023));
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    for (int i = 0; i < 2; ++i) {
      Barrier::init(&s.keys_full[i], 256);
      Barrier::init(&s.keys_empty[i], 128 * Kernel::kWarpgroups);
    }
    for (int i = 0; i < Kernel::kStages; ++i) {
      Barrier::init(&s.full[i], 256);
      Barrier::init(&s.empty[i], 128);  // the warpgroup that reads the stage
    }
    cutlass::arch::fence_barrier_init();
  }
  __syncthreads();
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    cutlass::arch::warpgroup_reg_dealloc<Kernel::kProducerRegisters>();
    Kernel::produce(a, s);
  } else {
    cutlass::arch::warpgroup_reg_alloc<Kernel::kConsumerRegisters>();
    Kernel::consume(a, s, warpgroup - 1);
  }
#endif
}

template <int DK, int DV, typename T>
cudaError_t launch_selected_forward(const RowAttention& p, const SelectedPlan& plan,
                                    void* workspace, int set, cudaStream_t stream) {
  using Kernel = SelectedForwardKernel<DK, DV, T>;
  return launch_items<Kernel>(selected_forward_kernel<Kernel>,
                              selected_arguments(p, plan, workspace, set), plan, stream);
}

}  // namespace nsa::kernels::sm90
