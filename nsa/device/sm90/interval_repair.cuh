// Interval attention, forward: tiles with values that are not finite.
//
// A row's probability of a masked key is 0, but 0 * NaN is not. A tile with an output that is not
// finite is therefore computed once more, with zeros in the place of such values of V: a row that
// attends none of them then has the bits it has without them, the others are computed from their
// own keys. On finite inputs this never happens.
#pragma once
#include "nsa/device/sm90/interval_tiles.cuh"
#include "nsa/device/sm90/online_softmax.cuh"

namespace nsa::device::sm90 {

template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalRepair : IntervalTiles<DK, DV, BN, T, kSelect> {
  using Base = IntervalTiles<DK, DV, BN, T, kSelect>;
  using typename Base::Rows, typename Base::Shared, typename Base::Tile;

  /// A row from its own keys only, one warp, in fp32; written if it is not finite.
  CUTE_DEVICE static bool plain_row(const IntervalArguments& a, int token, int q_head, Span keys,
                                    float lse, T* out) {
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
      const float p = fast_exp2(dot * a.scale_log2 - lse * kLog2e);
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
  /// The tile once more. The same operations in the same order as the first time, without their
  /// overlap. bad: bit r, row r of the thread had an output that is not finite.
  CUTE_DEVICE static void redo(const IntervalArguments& a, Shared& s, const Tile& tile, int half,
                               unsigned bad, const Rows& rows, const float (&lse)[2]) {
    auto scores = Base::scores_fragment();
    auto out = Base::out_fragment();
    auto probs = Base::probs_fragment();
    OnlineSoftmax softmax;
    clear(out);
    Base::wait(s.q_full, 1);
    for (int step = 0; step < tile.steps; ++step) {
      const int k_count = tile.steps + tile.select_steps + step, v_count = tile.steps + step;
      const int k_stage = k_count % kStages, v_stage = v_count % kStages;
      Base::wait(s.k_full[k_stage], (k_count / kStages) & 1);
      Base::multiply_scores(s, half, k_stage, scores);
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      if (threadIdx.x % 32 == 0) Base::arrive(s.k_empty[k_stage]);
      Base::mask(tile, rows, step, scores);
      softmax.step(scores, a.scale_log2);
      if (step > 0) softmax.rescale_rows(out);
      Base::pack(scores, probs);
      Base::wait(s.v_full[v_stage], (v_count / kStages) & 1);
      T* v = s.v[v_stage];
      for (int i = threadIdx.x - 128; i < int(cosize_v<typename Base::LayoutV>); i += 256)
        if (!isfinite(float(v[i]))) v[i] = T(0.f);
      cutlass::arch::fence_view_async_shared();
      cutlass::arch::NamedBarrier::sync(256, kRepair);
      Base::multiply_out(s, v_stage, probs, out);
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      cutlass::arch::NamedBarrier::sync(256, kRepair);
      if (threadIdx.x % 32 == 0) Base::arrive(s.v_empty[v_stage]);
    }
    softmax.finish();
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      write_bad_rows(a, tile, half, r, bad, rows, lse, softmax.sum[r], out);
  }

  /// Rows r of the eight quads of a warp, those that were bad: from `out` or by `plain_row`.
  template <class Out>
  CUTE_DEVICE static void write_bad_rows(const IntervalArguments& a, const Tile& tile, int half,
                                         int r, unsigned bad, const Rows& rows,
                                         const float (&lse)[2], float sum, const Out& out) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    for (int quad = 0; quad < 8; ++quad) {
      const int source = quad * 4, row = half * 64 + warp * 16 + quad + 8 * r;
      const bool was_bad = (__shfl_sync(~0u, bad, source) >> r) & 1;
      const Span own{__shfl_sync(~0u, rows.keys[r].begin, source),
                     __shfl_sync(~0u, rows.keys[r].end, source)};
      const float own_lse = __shfl_sync(~0u, lse[r], source);
      const typename Base::Row place = Base::row_of(a, row);
      if (!was_bad || !place.used(a, tile)) continue;  // the same for every lane
      T* to = static_cast<T*>(a.out) + place.place(a, tile) * DV;
      if (!plain_row(a, tile.first + place.token, blockIdx.y * a.group_size + place.head, own,
                     own_lse, to))
        continue;
      if (lane / 4 != quad) continue;
      const float inverse = sum == 0.f ? 0.f : 1.f / sum;
      CUTE_UNROLL
      for (int i = 0; i < decltype(size(out))::value; ++i)
        if ((i / 2) % 2 == r) to[(i / 4) * 8 + (lane % 4) * 2 + i % 2] = T(out(i) * inverse);
    }
  }
};

}  // namespace nsa::device::sm90
