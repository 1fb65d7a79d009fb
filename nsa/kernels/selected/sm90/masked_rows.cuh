// What a thread of both kernels for whole tiles under masks does with its two rows in registers:
// masks, the parts that the order of keys left, the output's way out.
#pragma once
#include "nsa/kernels/common/mma.cuh"
#include "nsa/kernels/common/quad.cuh"
#include "nsa/kernels/common/sm90/online_softmax.cuh"
#include "nsa/kernels/selected/parts.cuh"
#include "nsa/kernels/selected/sm90/masked_tiles.cuh"

namespace nsa::kernels::sm90 {

/// Scores of one tile, of which a thread's rows attend the first `columns` keys -> probabilities
/// relative to the running maximum.
template <class Scores>
CUTE_DEVICE void attend_columns(const int (&columns)[2], float scale_log2, OnlineSoftmax& softmax,
                                Scores& scores) {
  if (!__any_sync(~0u, max(columns[0], columns[1]) > 0)) {  // the same bits, without the work
    clear(scores);
    softmax.rescale[0] = softmax.rescale[1] = 1.f;
    return;
  }
  if (!__all_sync(~0u, min(columns[0], columns[1]) >= 64)) {
    CUTE_UNROLL
    for (int i = 0; i < size(scores); ++i)
      if (i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 >= columns[i / 2 % 2]) scores(i) = -INFINITY;
  }
  softmax.step(scores, scale_log2);
}

/// The products of a warpgroup's 64 rows with one tile of keys, enqueued: `scores` from Q in
/// registers and K, and what is added to `out` from probabilities in registers and V.
template <class Tiles, typename T, class Q, class Scores>
CUTE_DEVICE void enqueue_scores(T* tile, const Q& q, Scores& scores) {
  typename Tiles::MmaScores mma;
  auto of_thread = mma.get_thread_slice(threadIdx.x % 128);
  Tensor k = make_tensor(make_smem_ptr(tile), RowTile<T, Tiles::kKeyDim>{});
  warpgroup_fence_operand(scores);
  warpgroup_arrive();
  multiply(mma, q, of_thread.partition_fragment_B(k), scores, GMMA::ScaleOut::Zero);
  warpgroup_commit_batch();
}
template <class Tiles, typename T, class Probs, class Out>
CUTE_DEVICE void enqueue_out(T* tile, Probs& probs, Out& out) {
  typename Tiles::MmaOut mma;
  auto of_thread = mma.get_thread_slice(threadIdx.x % 128);
  Tensor v = make_tensor(make_smem_ptr(tile), ColumnTile<T, Tiles::kValueDim>{});
  warpgroup_fence_operand(out);
  warpgroup_fence_operand(probs);
  warpgroup_arrive();
  multiply(mma, probs, of_thread.partition_fragment_B(v), out, GMMA::ScaleOut::One);
  warpgroup_commit_batch();
}
template <class Out>
CUTE_DEVICE void rescale_rows(const OnlineSoftmax& softmax, Out& out) {
  if (__all_sync(~0u, softmax.rescale[0] == 1.f && softmax.rescale[1] == 1.f)) return;
  CUTE_UNROLL
  for (int i = 0; i < size(out); ++i) out(i) *= softmax.rescale[i / 2 % 2];
}

/// Adds the 8 columns of a part from 8 c on, of which a lane has its quarter's, to row `r` of out.
template <typename Cuda, class Out>
CUTE_DEVICE void add_piece(const uint4& four, float weight, int c, int r, Out& out) {
  const uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
  CUTE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float2 pair = portable::unpack(pairs[i], Cuda{});
    const int at = c * 16 + 4 * i + 2 * r;
    out(at) = fmaf(weight, pair.x, out(at));
    out(at + 1) = fmaf(weight, pair.y, out(at + 1));
  }
}
/// The sums of a quad are added up at the end of the pass.
CUTE_DEVICE void end_sums(OnlineSoftmax& softmax) {
  CUTE_UNROLL
  for (int r = 0; r < 2; ++r)
    if (threadIdx.x % 4 != 0) softmax.sum[r] = 0.f;
}

/// A thread's two rows begin with the sum of their parts, in the order of tiles, while keys and
/// values are on their way: `count` parts (below 0: the row is NaN), the first one at row `first`.
/// Two parts of each row are in flight.
template <int DV, typename Cuda, class Arguments, class Out>
CUTE_DEVICE void take_parts_of_rows(const Arguments& a, const int (&count)[2],
                                    const uint32_t (&first)[2], OnlineSoftmax& softmax, Out& out) {
  const DenseParts& from = a.queries.parts;
  const uint4* parts = static_cast<const uint4*>(from.parts) + threadIdx.x % 4;
  constexpr int kAhead = 2;
  uint4 pieces[kAhead][2][DV / 32];
  float2 stats[kAhead][2];
  const auto load = [&](int slot, int i) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      // Behind the last part any other, unused: loads under a condition cost twice the registers.
      const uint32_t row = i < count[r] ? first[r] + i * a.group_size : 0;
      stats[slot][r] = from.stats[row];
      const uint4* piece = parts + portable::first_of_part(row, DV);
      CUTE_UNROLL
      for (int c = 0; c < DV / 32; ++c) pieces[slot][r][c] = __ldcs(piece + c * 32);
    }
  };
  CUTE_UNROLL
  for (int j = 0; j < kAhead; ++j) load(j, j);
  float shift[2];
  CUTE_UNROLL
  for (int r = 0; r < 2; ++r) {
    float peak = -INFINITY;
#pragma unroll 4
    for (int i = threadIdx.x % 4; i < count[r]; i += 4)
      peak = fmaxf(peak, from.stats[first[r] + i * a.group_size].x);
    peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, 1));
    peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, 2));
    softmax.peak[r] = peak;
    softmax.sum[r] = count[r] < 0 ? NAN : 0.f;
    shift[r] = peak == -INFINITY ? 0.f : peak;
  }
  const int most = max(count[0], count[1]);
#pragma unroll 1
  for (int base = 0; base < most; base += kAhead) {
    CUTE_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        if (base + j >= count[r]) continue;
        const float weight = exp2f((stats[j][r].x - shift[r]) * a.scale_log2);
        softmax.sum[r] = fmaf(weight, stats[j][r].y, softmax.sum[r]);
        CUTE_UNROLL
        for (int c = 0; c < DV / 32; ++c) add_piece<Cuda>(pieces[j][r][c], weight, c, r, out);
      }
      load(j, base + j + kAhead);
    }
  }
  end_sums(softmax);
}

/// A warp's 16 rows of the output from `first_row` on, times `inverse`, to their `place` by way of
/// Q's, so that whole rows are written. Whether the output was finite.
template <class Tiles, class Arguments, class Shared, class Place, class Out>
CUTE_DEVICE bool write_rows(const Arguments& a, Shared& s, int first_row, int used_rows,
                            const float (&inverse)[2], const Place& place, const Out& out) {
  using T = std::remove_reference_t<decltype(s.q[0])>;
  constexpr int DV = Tiles::kValueDim;
  const int lane = threadIdx.x % 32;
  bool finite = true;
  __syncwarp();
  CUTE_UNROLL
  for (int c = 0; c < DV / 16; ++c) {
    uint32_t four[4];
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float x = out(c * 8 + 2 * i), y = out(c * 8 + 2 * i + 1);
      finite &= isfinite(x) && isfinite(y);
      four[i] = portable::pack<typename Tiles::Cuda>(x * inverse[i % 2], y * inverse[i % 2]);
    }
    store_matrices(
        portable::shared_address(Tiles::piece_of_row(s, first_row + lane % 16, c * 2 + lane / 16)),
        four[0], four[1], four[2], four[3]);
  }
  __syncwarp();
  constexpr int kPieces = DV / 8;  // of a row
  CUTE_UNROLL
  for (int i = lane; i < 16 * kPieces; i += 32) {
    const int row = first_row + i / kPieces;
    if (row < used_rows)
      *reinterpret_cast<uint4*>(static_cast<T*>(a.out) + place(row) * DV + i % kPieces * 8) =
          *reinterpret_cast<const uint4*>(Tiles::piece_of_row(s, row, i % kPieces));
  }
  return finite;
}

}  // namespace nsa::kernels::sm90
