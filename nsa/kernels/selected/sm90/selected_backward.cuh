// Selected attention, backward, in the order of keys, on wgmma.
//
// A CTA takes items from a counter and holds the 64 keys and values of an item's tile; the rows
// that attend the tile pass by in tiles of 64. A row is a (token, head of the group) pair, row =
// pair of the list * G + head, so any group size fills the tiles. Warpgroup 0 gathers rows of Q and
// d_out by cp.async, two more take alternate row tiles:
//   S^T = K Q^T, P^T = exp2(S^T - lse), dV += P^T dO, dP^T = V dO^T, dS^T = P^T (dP^T - delta),
//   dK += dS^T Q, and dQ = dS K, which goes to memory as one part of the rows' d_q.
// Keys are the rows of S^T, so that P^T is an A operand where it stands, in registers.
//
// Values that are not finite: probabilities of what a row does not attend are selected away, but
// 0 * NaN is NaN in the products over keys or rows. Keys, values and rows with such a value are
// therefore replaced by zeros in shared memory, and what attends them gets its NaN by selection.
#pragma once
#include "nsa/kernels/selected/sm90/selected_backward_launch.h"
#include "nsa/kernels/selected/sm90/selected_tiles.cuh"
#include "nsa/kernels/selected/sm90/selected_values.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, typename T>
struct SelectedBackwardKernel {
  using Traits = ElementTraits<T>;
  // That compute: three hide more of their latency where registers suffice.
  static constexpr int kWarpgroups = DK + DV == 128 ? 3 : 2;
  static constexpr int kThreads = 128 + 128 * kWarpgroups, kConsumers = 128 * kWarpgroups;
  // 128 x 40 + 256 x 232 or 128 x 72 + 256 x 216 of the 384 x 168 registers a launch gives, 128 x
  // 56 + 384 x 152 of 512 x 128.
  static constexpr int kProducerRegisters = DK + DV == 320   ? 40
                                            : DK + DV == 256 ? 72
                                                             : 56,
                       kConsumerRegisters = DK + DV == 320   ? 232
                                            : DK + DV == 256 ? 216
                                                             : 152;
  static constexpr int kStages = DK + DV == 320 ? 4 : DK + DV == 256 ? 5 : 8;
  // Of an item's last tiles of rows, in the end: two for each two sums that change warpgroups.
  static constexpr int kPlaces = kWarpgroups == 3 ? 4 : 2;
  static constexpr int kAllConsumers = 1 + kWarpgroups;  // a barrier, behind those of warpgroups
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

  struct Shared {
    alignas(1024) T k[64 * DK];
    alignas(1024) T v[64 * DV];
    alignas(1024) T q[kStages][64 * DK];  // an item's last kPlaces tiles of rows: then accumulators
    alignas(1024) T d_out[kStages][64 * DV];   // on their way to another warpgroup
    alignas(1024) T ds[kWarpgroups][64 * 64];  // [key][row] of a warpgroup
    alignas(16) float2 stats[kStages][64];
    uint64_t masks[kStages][64];
    int32_t places[kStages][64];  // where a row's part of d_q goes (selected/parts.cuh)
    SelectedWork work[2];         // an item of no rows: there are none left
    uint64_t bad_k[2], bad_v[2];  // keys with a value that is not finite
    alignas(8) uint64_t keys_full, keys_empty, full[kStages], empty[kStages], sums_moved;
  };
  static_assert(kStages >= kPlaces);
  static constexpr int kSharedBytes = sizeof(Shared) + 1024;
  static_assert(kSharedBytes <= 232448);

  /// Masks, places and statistics of a row of a stage, for one thread.
  CUTE_DEVICE static void describe(const SelectedArguments& a, Shared& s, const SelectedWork& w,
                                   int stage, int row, uint32_t entry, int in_group, bool valid) {
    describe_row<DK>(a, w, s.masks[stage][row], s.places[stage][row], entry, in_group, valid);
    if (valid) {
      const int64_t token = int64_t(w.batch) * a.tokens_of_batch + (entry >> 8);
      copy_async_8(portable::shared_address(&s.stats[stage][row]),
                   a.stats + token * a.num_heads + w.kv_head * a.group_size + in_group);
    } else {
      s.stats[stage][row] = make_float2(0.f, 0.f);
    }
  }

  /// Row tiles of an item: as many at least as accumulators have places in.
  CUTE_DEVICE static int steps_of(const SelectedArguments& a, const SelectedWork& w) {
    return max(kPlaces, w.steps(a));
  }

  CUTE_DEVICE static void produce(const SelectedArguments& a, Shared& s) {
    ItemQueue queue(a);
    int done = 0;
    for (int n = 0;; ++n) {
      SelectedWork next{};
      if (threadIdx.x == 0) next = queue.take(a);
      wait_for(s.keys_empty, (n + 1) & 1);  // the item before the last one is all done
      if (threadIdx.x == 0) {
        s.work[n % 2] = next;
        s.bad_k[n % 2] = s.bad_v[n % 2] = 0;
      }
      __syncwarp();  // the barrier counts warps
      cutlass::arch::NamedBarrier::sync(128, 0);
      const SelectedWork w = s.work[n % 2];
      if (w.item.count > 0) copy_keys<DK, DV>(a, w, s.k, s.v);
      arrive_with_copies(s.keys_full);
      if (w.item.count == 0) return;
      gather(a, s, w, done);
      done += steps_of(a, w);
    }
  }

  CUTE_DEVICE static void gather(const SelectedArguments& a, Shared& s, const SelectedWork& w,
                                 int done) {
    const int head = w.kv_head * a.group_size;
    const T* q = static_cast<const T*>(a.q.data) + w.batch * a.q.batch + head * a.q.head +
                 threadIdx.x % 8 * 8;
    const T* d_out = static_cast<const T*>(a.d_out.data) + w.batch * a.d_out.batch +
                     head * a.d_out.head + threadIdx.x % 8 * 8;
    const RowStrides q_strides(a.q), d_out_strides(a.d_out);
    gather_rows<kStages, 2>(
        a, w, done, steps_of(a, w), s.full, s.empty,
        [&](bool of_second, int token, int in_group) {
          const RowStrides& x = of_second ? d_out_strides : q_strides;
          return token * x.token + in_group * x.head;
        },
        [&](int stage, int i, int tensor, int offset) {
          if (tensor == 0) {
            copy_row<DK, true>(s.q[stage], threadIdx.x, i, q, offset);
          } else {
            copy_row<DV, true>(s.d_out[stage], threadIdx.x, i, d_out, offset);
          }
        },
        [&](int stage, int row, uint32_t entry, int in_group, bool valid) {
          describe(a, s, w, stage, row, entry, in_group, valid);
        });
  }

  /// Zeros in the place of keys and values that are not finite; their bits go to bad_k and bad_v.
  /// All that compute; the first 256 of them do it.
  CUTE_DEVICE static void clear_bad_keys(Shared& s, uint64_t& bad_keys, uint64_t& bad_values) {
    const int key = (threadIdx.x - 128) / 4, quarter = threadIdx.x % 4;
    const bool takes_part = kWarpgroups == 2 || key < 64;
    const auto sweep = [&](T* tile, int pieces, auto&& visit) {
      for (int i = quarter; takes_part && i < pieces; i += 4)
        visit(*reinterpret_cast<uint4*>(tile + piece_of_tile(key, i)));
    };
    bool bad_k = false, bad_v = false;
    sweep(s.k, DK / 8, [&](uint4& x) { bad_k |= not_finite<T>(x); });
    sweep(s.v, DV / 8, [&](uint4& x) { bad_v |= not_finite<T>(x); });
    if (bad_k) atomicOr(reinterpret_cast<unsigned long long*>(&bad_keys), 1ull << key);
    if (bad_v) atomicOr(reinterpret_cast<unsigned long long*>(&bad_values), 1ull << key);
    cutlass::arch::NamedBarrier::sync(kConsumers, kAllConsumers);
    if ((bad_keys | bad_values) == 0) return;
    const auto clear = [&](uint4& x) { x = make_uint4(0, 0, 0, 0); };
    if (takes_part && bad_keys >> key & 1) sweep(s.k, DK / 8, clear);
    if (takes_part && bad_values >> key & 1) sweep(s.v, DV / 8, clear);
    cutlass::arch::fence_view_async_shared();
    cutlass::arch::NamedBarrier::sync(kConsumers, kAllConsumers);
  }

  CUTE_DEVICE static void consume(const SelectedArguments& a, Shared& s, int warpgroup) {
    int done = 0;
    for (int n = 0;; ++n) {
      wait_for(s.keys_full, n & 1);
      if (s.work[n % 2].item.count == 0) return;
      clear_bad_keys(s, s.bad_k[n % 2], s.bad_v[n % 2]);
      done = attend(a, s, n, done, warpgroup);
    }
  }

  /// One warpgroup: every kWarpgroups-th row tile of an item; returns the row tiles of all items so
  /// far.
  CUTE_DEVICE static int attend(const SelectedArguments& a, Shared& s, int n, int done,
                                int warpgroup) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const int end = done + steps_of(a, s.work[n % 2]);
    const uint64_t &bad_keys = s.bad_k[n % 2], &bad_values = s.bad_v[n % 2];
    MmaScores mma_scores;
    MmaDProbs mma_d_probs;
    decltype(make_tiled_mma(GMMA::ss_op_selector<T, T, float, Shape<_64, Int<DK>, _64>,
                                                 GMMA::Major::K, GMMA::Major::MN>())) mma_k;
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
    Tensor frag_ds = q_thread.partition_fragment_A(
        make_tensor(make_smem_ptr(s.ds[warpgroup]), ColumnTile<T, 64>{}));
    Tensor frag_ds_of_keys = k_thread.partition_fragment_A(
        make_tensor(make_smem_ptr(s.ds[warpgroup]), RowTile<T, 64>{}));
    Tensor d_k = partition_fragment_C(mma_k, Shape<_64, Int<DK>>{});
    Tensor d_v = partition_fragment_C(mma_v, Shape<_64, Int<DV>>{});
    // P^T as the A operand: the accumulators' order, packed in pairs.
    Tensor probs = make_tensor<T>(Layout<Shape<Shape<_2, _2, _2>, _1, _4>>{});
    Tensor probs_bits = recast<uint32_t>(probs);
    clear(d_k);
    clear(d_v);

    const int own_key = warp * 16 + lane / 4;  // and own_key + 8

    for (int step = done + warpgroup; step < end; step += kWarpgroups) {
      const int stage = step % kStages;
      wait_for(s.full[stage], (step / kStages) & 1);
      const bool nan_row = isnan(s.stats[stage][lane].x) || isnan(s.stats[stage][lane + 32].x);
      const bool whole =
          __all_sync(~0u, (s.masks[stage][lane] & s.masks[stage][lane + 32]) == ~0ull);
      if (__any_sync(~0u, nan_row))
        clear_bad_rows<DK, DV>(s.q[stage], s.d_out[stage], s.stats[stage], 1 + warpgroup);
      cutlass::arch::fence_view_async_shared();  // what the copies wrote -> products

      Tensor scores = partition_fragment_C(mma_scores, Shape<_64, _64>{});
      warpgroup_fence_operand(scores);
      warpgroup_arrive();
      multiply(mma_scores, frag_k,
               scores_thread.partition_fragment_B(
                   make_tensor(make_smem_ptr(s.q[stage]), GatheredRows<T, DK>{})),
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
      cutlass::arch::NamedBarrier::sync(128,
                                        1 + warpgroup);  // no product reads the last dS any more
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
      if (bad_keys != 0) spoil(scores, attended, 0, bad_keys >> own_key);
      pack_pairs<typename Traits::Cuda>(scores, probs_bits, 0);

      const auto start_d_probs = [&](int part, auto& d_probs) {
        warpgroup_fence_operand(d_probs);
        warpgroup_arrive();
        Tensor rows = make_tensor(make_smem_ptr(s.d_out[stage]), GatheredRows<T, DV>{});
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
        if ((bad_keys | bad_values) != 0)
          spoil(d_probs, attended, part * kRowsOfPart / 2, (bad_keys | bad_values) >> own_key);
        Tensor bits = make_tensor<uint32_t>(Shape<Int<kRowsOfPart / 4>>{});
        pack_pairs<typename Traits::Cuda>(d_probs, bits, 0);
        const int key = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
        const uint32_t to = portable::shared_address(s.ds[warpgroup]) + key * 128;
        CUTE_UNROLL
        for (int i = 0; i < kRowsOfPart / 16; ++i)
          store_matrices(to + ((part * kRowsOfPart / 8 + 2 * i + lane / 16) ^ (key % 8)) * 16,
                         bits(4 * i), bits(4 * i + 1), bits(4 * i + 2), bits(4 * i + 3));
      };
      Tensor d_probs = partition_fragment_C(mma_d_probs, Shape<_64, Int<kRowsOfPart>>{});
      warpgroup_fence_operand(probs);
      warpgroup_fence_operand(d_v);
      start_d_probs(0, d_probs);
      multiply(mma_v, probs,
               v_thread.partition_fragment_B(
                   make_tensor(make_smem_ptr(s.d_out[stage]), GatheredColumns<T, DV>{})),
               d_v, GMMA::ScaleOut::One);
      warpgroup_commit_batch();
      warpgroup_wait<1>();
      finish_d_probs(0, d_probs);
      if constexpr (kRowsOfPart < 64) {
        start_d_probs(1, d_probs);
        warpgroup_wait<0>();
        finish_d_probs(1, d_probs);
      }

      cutlass::arch::fence_view_async_shared();  // dS, [key][row] -> products
      cutlass::arch::NamedBarrier::sync(128, 1 + warpgroup);

      // d_q by 64 columns, a part of which goes to memory while the next product runs, behind the
      // first one d_k. Both have dS from shared memory, so that registers hold what is in flight.
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
      start_d_q(0);
      warpgroup_fence_operand(d_k);
      warpgroup_arrive();
      multiply(mma_k, frag_ds_of_keys,
               k_thread.partition_fragment_B(
                   make_tensor(make_smem_ptr(s.q[stage]), GatheredColumns<T, DK>{})),
               d_k, GMMA::ScaleOut::One);
      warpgroup_commit_batch();
      CUTE_UNROLL
      for (int c = 0; c < DK / 64; ++c) {
        if (c == 0) {
          warpgroup_wait<1>();
          warpgroup_fence_operand(d_v);
        } else {
          warpgroup_wait<0>();
        }
        warpgroup_fence_operand(d_q);
        uint4 pieces[2];  // the other row's leave before the next product begins
        pack_part<typename Traits::Cuda>(pieces, a.scale, d_q, 0);
        store_part(a.parts, places[0], c * 64, pieces);
        pack_part<typename Traits::Cuda>(pieces, a.scale, d_q, 2);
        if (c + 1 < DK / 64) start_d_q(c + 1);
        store_part(a.parts, places[1], c * 64, pieces);
        if (c > 0) continue;
        if constexpr (DK > 64) {
          warpgroup_wait<1>();
        } else {
          warpgroup_wait<0>();
        }
        warpgroup_fence_operand(d_k);
        if (step + kPlaces < end) arrive_at(s.empty[stage]);
      }
    }
    arrive_at(s.keys_empty);
    hand_over(a, s, n, end, warpgroup, d_k, d_v);
    return end;
  }

  /// Sums of the warpgroups: the first finishes d_k, the second d_v. They meet in the places of the
  /// item's last row tiles, two of which hold the d_k of one warpgroup and the d_v of another.
  template <class Keys, class Values>
  CUTE_DEVICE static void hand_over(const SelectedArguments& a, Shared& s, int n, int end,
                                    int warpgroup, Keys& d_k, Values& d_v) {
    const int thread = threadIdx.x % 128, first = end - kPlaces;
    const auto at = [&](T* tiles, int columns, int pair, int value) {
      const int stage = (first + 2 * pair + value / (columns / 4)) % kStages;
      return reinterpret_cast<float*>(tiles + stage * 64 * columns) + value % (columns / 4) * 128 +
             thread;
    };
    constexpr int kOfKeys = DK / 2, kOfValues = DV / 2;            // values of a thread
    cutlass::arch::NamedBarrier::sync(kConsumers, kAllConsumers);  // the places have been read
    if (warpgroup != 1) {
      CUTE_UNROLL
      for (int i = 0; i < kOfValues; ++i) *at(s.d_out[0], DV, warpgroup / 2, i) = d_v(i);
    }
    if (warpgroup != 0) {
      CUTE_UNROLL
      for (int i = 0; i < kOfKeys; ++i) *at(s.q[0], DK, warpgroup / 2, i) = d_k(i);
    }
    arrive_at(s.sums_moved);
    wait_for(s.sums_moved, n & 1);
    const SelectedWork& w = s.work[n % 2];
    float* slot =
        a.slots +
        (int64_t(w.head_index - a.first_head) * a.items_of_head + w.item.slot) * (64 * (DK + DV)) +
        thread;
    if (warpgroup == 0) {
      CUTE_UNROLL
      for (int i = 0; i < kOfKeys; ++i) {
        float sum = d_k(i) + *at(s.q[0], DK, 0, i);
        if constexpr (kWarpgroups == 3) sum += *at(s.q[0], DK, 1, i);
        slot[i * 128] = sum * a.scale;
      }
    } else if (warpgroup == 1) {
      CUTE_UNROLL
      for (int i = 0; i < kOfValues; ++i) {
        float sum = d_v(i) + *at(s.d_out[0], DV, 0, i);
        if constexpr (kWarpgroups == 3) sum += *at(s.d_out[0], DV, 1, i);
        slot[(kOfKeys + i) * 128] = sum;
      }
    }
    cutlass::arch::fence_view_async_shared();  // plain accesses -> copies of the next rows
    cutlass::arch::NamedBarrier::sync(kConsumers, kAllConsumers);  // all have read
    for (int i = warpgroup; i < kPlaces; i += kWarpgroups)
      arrive_at(s.empty[(first + i) % kStages]);
  }
};

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    selected_backward_kernel(const __grid_constant__ SelectedArguments a) {
#if NSA_CODE_OF_SM90
  NSA_UNALIGNED_SHARED(raw);
  // Aligned without a detour through integers, so that the compiler knows it for shared memory.
  auto& s =
      *reinterpret_cast<typename Kernel::Shared*>(raw + (-portable::shared_address(raw) & 1023));
  if (threadIdx.x == 0) {
    using Barrier = cutlass::arch::ClusterBarrier;
    Barrier::init(&s.keys_full, 256);
    Barrier::init(&s.keys_empty, Kernel::kConsumers);
    Barrier::init(&s.sums_moved, Kernel::kConsumers);
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

}  // namespace nsa::kernels::sm90
