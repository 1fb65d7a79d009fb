// Interval attention, forward: what the warps that compute do with a tile. Rows, products, masks.
#pragma once
#include "nsa/kernels/common/sm90/online_softmax.cuh"
#include "nsa/kernels/interval/sm90/interval_loads.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, int BN, typename T, bool kSelect>
struct IntervalTiles : IntervalLoads<DK, DV, BN, T, kSelect> {
  using Base = IntervalLoads<DK, DV, BN, T, kSelect>;
  using Base::keys_at;
  using typename Base::LayoutK;
  using typename Base::LayoutQ;
  using typename Base::LayoutV;
  using typename Base::MmaOut;
  using typename Base::MmaScores;
  using typename Base::Shared;
  using typename Base::Tile;

  /// What a row of the tile is: a head of the group at a token of the tile.
  struct Row {
    int token, head;
    /// Whether it is a row of the problem.
    CUTE_DEVICE bool used(const IntervalArguments& a, const Tile& tile) const {
      return head < a.group_size && token < tile.count;
    }
    /// Where it stands among all rows [B, S, Hq].
    CUTE_DEVICE int64_t place(const IntervalArguments& a, const Tile& tile) const {
      return (int64_t(tile.batch) * a.tokens_of_batch + tile.first + token) * a.num_heads +
             tile.kv_head * a.group_size + head;
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
    int thread = threadIdx.x;
    asm volatile("" : "+r"(thread));  // found anew, as the tile is
    Rows rows;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      rows.index[r] = half * 64 + thread % 128 / 32 * 16 + thread % 32 / 4 + 8 * r;
      const int token = min(row_of(a, rows.index[r]).token, tile.count - 1);
      rows.keys[r] = keys_at(a, tile.shift + tile.first + token);
    }
    rows.inner = {keys_at(a, tile.shift + tile.first + tile.count - 1).begin,
                  keys_at(a, tile.shift + tile.first).end};
    return rows;
  }

  /// The words of a thread's rows.
  struct RowWords {
    const TokenWords* of[2];

    CUTE_DEVICE RowWords(const IntervalArguments& a, const Shared& s, const Tile& tile,
                         const Rows& rows, int buffer) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        of[r] = s.words[buffer] + min(row_of(a, rows.index[r]).token, tile.count - 1);
    }
    /// Ragged rows have a sum that is NaN from the beginning.
    CUTE_DEVICE void begin(OnlineSoftmax& softmax) const {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r)
        if (of[r]->ragged) softmax.sum[r] = NAN;
    }
  };

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
  CUTE_DEVICE static void mask(const Rows& rows, int first, Scores& scores) {
    const int begin = max(rows.keys[0].begin, rows.keys[1].begin),
              end = min(rows.keys[0].end, rows.keys[1].end);
    if (__all_sync(~0u, first >= begin && first + BN <= end)) return;
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i) {
      const int key = first + (i / 4) * 8 + (threadIdx.x % 4) * 2 + i % 2, r = (i / 2) % 2;
      if (key < rows.keys[r].begin || key >= rows.keys[r].end) scores(i) = -INFINITY;
    }
  }
  /// Likewise where ranges are tiles: a step is two of them.
  template <class Scores>
  CUTE_DEVICE static void mask_tiles(const Rows& rows, const RowWords& words, int first,
                                     Scores& scores) {
    bool on[2][2], all = true;
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const uint32_t pair = words.of[r]->halves[first / 2048] >> first / 64 % 32;
      on[r][0] = pair & 1, on[r][1] = pair & 2;
      all &= (pair & 3) == 3;
    }
    const bool inside = first + BN <= min(rows.keys[0].end, rows.keys[1].end);
    if (__all_sync(~0u, all && inside)) return;
    if (__all_sync(~0u, inside)) {
      CUTE_UNROLL
      for (int i = 0; i < size(scores); ++i)
        scores(i) = on[i / 2 % 2][i / 32] ? scores(i) : -INFINITY;
      return;
    }
    int columns[2][2];  // from here on a tile's columns are not attended
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      for (int j = 0; j < 2; ++j) columns[r][j] = on[r][j] ? rows.keys[r].end - first : 0;
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i)
      if ((i / 4) * 8 + (threadIdx.x % 4) * 2 + i % 2 >= columns[i / 2 % 2][i / 32])
        scores(i) = -INFINITY;
  }
  template <class Scores, class Probs>
  CUTE_DEVICE static void pack(const Scores& scores, Probs& probs) {
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i) probs(i) = T(scores(i));
  }
};

}  // namespace nsa::kernels::sm90
