// Interval attention, forward: tiles with values that are not finite.
//
// A row's probability of a masked key is 0, but 0 * NaN is not. A tile with an output that is not
// finite is therefore computed once more, with zeros in the place of such values of V: a row that
// attends none of them then has the bits it has without them, the others are computed from their
// own keys. On finite inputs this never happens.
#pragma once
#include "nsa/kernels/common/sm90/online_softmax.cuh"
#include "nsa/kernels/interval/sm90/interval_tiles.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalRepair : IntervalTiles<DK, DV, BN, T, kSelect> {
  using Base = IntervalTiles<DK, DV, BN, T, kSelect>;
  using typename Base::Loads, typename Base::Rows, typename Base::Shared, typename Base::Tile;

  /// A row from its own keys only, one warp, in fp32; written if it is not finite.
  CUTE_DEVICE static bool plain_row(const IntervalArguments& a, const Tile& tile, int token,
                                    int q_head, Span keys, const TokenWords& word, float lse,
                                    T* out) {
    const int lane = threadIdx.x % 32, kv_head = tile.kv_head, batch = tile.batch;
    const T* q =
        static_cast<const T*>(a.q.data) + batch * a.q.batch + token * a.q.token + q_head * a.q.head;
    const T* k = static_cast<const T*>(a.k.data) + batch * a.k.batch + kv_head * a.k.head +
                 tile.first_key * a.k.token;
    const T* v = static_cast<const T*>(a.v.data) + batch * a.v.batch + kv_head * a.v.head +
                 tile.first_key * a.v.token;
    float total[DV / 32] = {};
    for (int key = keys.begin; key < keys.end; ++key) {
      if (Base::kWords && a.ranges != nullptr && !(word.halves[key / 2048] >> key / 64 % 32 & 1))
        continue;
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
  /// Which of the thread's rows have an output in memory that is not finite (bit r), and their lse.
  CUTE_DEVICE static unsigned read_rows(const IntervalArguments& a, const Shared& s,
                                        const Tile& tile, const Rows& rows, float (&lse)[2]) {
    unsigned bad = 0;
    for (int r = 0; r < 2; ++r) {
      const typename Base::Row row = Base::row_of(a, rows.index[r]);
      lse[r] = -INFINITY;
      if (!row.used(a, tile)) continue;
      if (Base::kWords && a.ranges != nullptr && s.words[0][row.token].ragged) continue;  // stays
      lse[r] = a.lse[row.place(a, tile)];
      const T* out = static_cast<const T*>(a.out) + row.place(a, tile) * DV;
      for (int c = threadIdx.x % 4; c < DV; c += 4)
        if (!isfinite(float(out[c]))) bad |= 1u << r;
    }
    bad |= __shfl_xor_sync(~0u, bad, 1);
    return bad | __shfl_xor_sync(~0u, bad, 2);
  }
  /// The CTA's tile `index` once more. The same operations in the same order as the first time,
  /// without their overlap. What is known of the tile is found anew in each step: fewer registers.
  CUTE_DEVICE static void redo(const IntervalArguments& a, Shared& s, int index, int half,
                               Loads& loads) {
    const int steps = Base::tile_of(a, Base::unit_of(index)).steps;
    auto scores = Base::scores_fragment();
    auto out = Base::out_fragment();
    auto probs = Base::probs_fragment();
    OnlineSoftmax softmax;
    clear(out);
    if (Base::kWords && a.ranges != nullptr) take_words(a, s, index, half, softmax);
    Base::wait(s.q_full, loads.q() & 1);
    CUTE_NO_UNROLL
    for (int step = 0; step < steps; ++step) {
      const int k_stage = Base::stage_of(loads.k()), v_stage = Base::stage_of(loads.v());
      Base::wait(s.k_full[k_stage], Base::phase_of(loads.k()));
      Base::multiply_scores(s, half, k_stage, scores);
      warpgroup_wait<0>();
      warpgroup_fence_operand(scores);
      if (threadIdx.x % 32 == 0) Base::arrive(s.k_empty[k_stage]);
      mask(a, s, Base::tile_again(a, index), half, step, scores);
      softmax.step(scores, a.scale_log2);
      if (step > 0) softmax.rescale_rows(out);
      Base::pack(scores, probs);
      Base::wait(s.v_full[v_stage], Base::phase_of(loads.v()));
      T* v = s.v[v_stage];
      for (int i = threadIdx.x - 128; i < int(cosize_v<typename Base::LayoutV>);
           i += Base::kConsumers)
        if (!isfinite(float(v[i]))) v[i] = T(0.f);
      cutlass::arch::fence_view_async_shared();
      cutlass::arch::NamedBarrier::sync(Base::kConsumers, kRepair);
      Base::multiply_out(s, v_stage, probs, out);
      warpgroup_wait<0>();
      warpgroup_fence_operand(out);
      cutlass::arch::NamedBarrier::sync(Base::kConsumers, kRepair);
      if (threadIdx.x % 32 == 0) Base::arrive(s.v_empty[v_stage]);
      loads.add_k(1), loads.add_v();
    }
    Base::release_q(s);
    loads.add_q();
    softmax.finish();
    const Tile tile = Base::tile_again(a, index);
    const Rows rows = Base::rows_of(a, tile, half);
    float lse[2];
    const unsigned bad = read_rows(a, s, tile, rows, lse);
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      write_bad_rows(a, s, tile, half, r, bad, rows, lse, softmax.sum[r], out);
  }
  CUTE_DEVICE static void take_words(const IntervalArguments& a, Shared& s, int index, int half,
                                     OnlineSoftmax& softmax) {
    uint32_t any[2];
    cutlass::arch::NamedBarrier::sync(Base::kConsumers, kRepair);
    Base::make_words(a, s.words[0], index, threadIdx.x / 32 - 4, Base::kConsumers / 32, any);
    cutlass::arch::NamedBarrier::sync(Base::kConsumers, kRepair);
    const Tile tile = Base::tile_of(a, Base::unit_of(index));
    const Rows rows = Base::rows_of(a, tile, half);
    const typename Base::RowWords words(a, s, tile, rows, 0);
    words.begin(softmax);
  }
  template <class Scores>
  CUTE_DEVICE static void mask(const IntervalArguments& a, const Shared& s, const Tile& tile,
                               int half, int step, Scores& scores) {
    const Rows rows = Base::rows_of(a, tile, half);
    if (Base::kWords && a.ranges != nullptr) {
      const typename Base::RowWords words(a, s, tile, rows, 0);
      Base::mask_tiles(rows, words, step * BN, scores);
    } else {
      Base::mask(rows, tile.begin + step * BN, scores);
    }
  }

  /// Rows r of the eight quads of a warp, those that were bad: from `out` or by `plain_row`.
  template <class Out>
  CUTE_DEVICE static void write_bad_rows(const IntervalArguments& a, const Shared& s,
                                         const Tile& tile, int half, int r, unsigned bad,
                                         const Rows& rows, const float (&lse)[2], float sum,
                                         const Out& out) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
    for (int quad = 0; quad < 8; ++quad) {
      const int source = quad * 4, row = half * 64 + warp * 16 + quad + 8 * r;
      const bool was_bad = (__shfl_sync(~0u, bad, source) >> r) & 1;
      const Span own{__shfl_sync(~0u, rows.keys[r].begin, source),
                     __shfl_sync(~0u, rows.keys[r].end, source)};
      const float own_lse = __shfl_sync(~0u, lse[r], source);
      const typename Base::Row place = Base::row_of(a, row);
      if (!was_bad || !place.used(a, tile)) continue;  // the same for every lane
      const TokenWords& word = s.words[0][Base::kWords ? place.token : 0];
      T* to = static_cast<T*>(a.out) + place.place(a, tile) * DV;
      if (!plain_row(a, tile, tile.first + place.token, tile.kv_head * a.group_size + place.head,
                     own, word, own_lse, to))
        continue;
      if (lane / 4 != quad) continue;
      const float inverse = sum == 0.f ? 0.f : 1.f / sum;
      CUTE_UNROLL
      for (int i = 0; i < decltype(size(out))::value; ++i)
        if ((i / 2) % 2 == r) to[(i / 4) * 8 + (lane % 4) * 2 + i % 2] = T(out(i) * inverse);
    }
  }
};

}  // namespace nsa::kernels::sm90
