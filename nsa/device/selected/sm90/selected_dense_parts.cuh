// Rows of the kernel for whole tiles under masks begin with the sum of the parts that the order of
// keys left of their others, in the order of tiles.
#pragma once
#include "nsa/device/selected/parts.cuh"
#include "nsa/device/selected/sm90/selected_dense_loads.cuh"
#include "nsa/device/sm80/mma.cuh"
#include "nsa/device/sm80/quad.cuh"
#include "nsa/device/sm90/online_softmax.cuh"

namespace nsa::device::sm90 {

template <int DK, int DV, typename T>
struct SelectedDenseParts : SelectedDenseLoads<DK, DV, T> {
  using Base = SelectedDenseLoads<DK, DV, T>;
  using typename Base::Cuda;
  using typename Base::Rows;
  using typename Base::Shared;
  using typename Base::Tile;
  using typename Base::Walk;

  /// The parts of a thread's two rows from the places of K and V, two of each a stage.
  template <class Out>
  CUTE_DEVICE static void take_streamed(const DenseArguments& a, Shared& s, int most,
                                        const Rows& rows, Walk& walk, OnlineSoftmax& softmax,
                                        Out& out) {
    const bool halves = a.group_size == 4;
    int count[2], piece[2], described[2];  // where a row's pieces and its statistics begin
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = Rows::row(r), token = Rows::token(a, r);
      count[r] = rows.word(s, r).count;
      piece[r] = (halves ? token % 8 * 8 : row / 8 * 8) * (DV / 8) +
                 (halves ? row % 4 : row % 8) * 4 + threadIdx.x % 4;
      described[r] = row + token * a.group_size;
      softmax.sum[r] = count[r] < 0 ? NAN : 0.f;
    }
#pragma unroll 1
    for (int first = 0; first < most; first += 2) {
      walk.next_stage();
      wait_for(s.k_full[walk.stage], walk.phase);
      const uint4* const k = reinterpret_cast<const uint4*>(s.k[walk.stage]);
      const uint4* const v = reinterpret_cast<const uint4*>(s.v[walk.stage]);
      const uint4* const places[2] = {halves && threadIdx.x % 128 >= 64 ? v : k,
                                      !halves                   ? v
                                      : threadIdx.x % 128 >= 64 ? v + 16
                                                                : k + 16};
      float weights[2][2], factor[2];
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        float2 stats[2];
        CUTE_UNROLL
        for (int i = 0; i < 2; ++i)
          stats[i] = first + i < count[r] ? s.stats[walk.stage][described[r] + i * a.group_size]
                                          : make_float2(-INFINITY, 0.f);
        const float top = fmaxf(softmax.peak[r], fmaxf(stats[0].x, stats[1].x)),
                    shift = top == -INFINITY ? 0.f : top;
        factor[r] = softmax.peak[r] == top ? 1.f : exp2f((softmax.peak[r] - shift) * a.scale_log2);
        softmax.peak[r] = top;
        softmax.sum[r] *= factor[r];
        CUTE_UNROLL
        for (int i = 0; i < 2; ++i) {
          weights[i][r] = exp2f((stats[i].x - shift) * a.scale_log2);
          softmax.sum[r] = fmaf(weights[i][r], stats[i].y, softmax.sum[r]);
        }
      }
      if (!__all_sync(~0u, factor[0] == 1.f && factor[1] == 1.f)) {
        CUTE_UNROLL
        for (int i = 0; i < size(out); ++i) out(i) *= factor[i / 2 % 2];
      }
      wait_for(s.v_full[walk.stage], walk.phase);
      CUTE_UNROLL
      for (int i = 0; i < 2; ++i) {
        CUTE_UNROLL
        for (int r = 0; r < 2; ++r) {
          if (first + i >= count[r]) continue;
          CUTE_UNROLL
          for (int c = 0; c < DV / 32; ++c)
            add_piece(places[i][piece[r] + c * 32], weights[i][r], c, r, out);
        }
      }
      warpgroup_fence_operand(out);  // the pieces are read
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        arrive_at(s.k_empty[walk.stage]);
        arrive_at(s.v_empty[walk.stage]);
      }
    }
    end_sums(softmax);
  }

  template <class Out>
  CUTE_DEVICE static void add_piece(const uint4& four, float weight, int c, int r, Out& out) {
    const uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float2 pair = sm80::unpack(pairs[i], Cuda{});
      const int at = c * 16 + 4 * i + 2 * r;
      out(at) = fmaf(weight, pair.x, out(at));
      out(at + 1) = fmaf(weight, pair.y, out(at + 1));
    }
  }
  /// The sums of a quad are added up at the end.
  CUTE_DEVICE static void end_sums(OnlineSoftmax& softmax) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r)
      if (threadIdx.x % 4 != 0) softmax.sum[r] = 0.f;
  }

  /// The same from global memory, for groups that do not fill blocks of 8 rows. Two parts of each
  /// row are in flight.
  template <class Out>
  CUTE_DEVICE static void take_parts(const DenseArguments& a, const Shared& s, const Tile& tile,
                                     const Rows& rows, OnlineSoftmax& softmax, Out& out) {
    const DenseParts& from = a.queries.parts;
    const uint4* parts = static_cast<const uint4*>(from.parts) + threadIdx.x % 4;
    constexpr int kAhead = 2;
    int count[2];
    uint32_t first[2];
    uint4 pieces[kAhead][2][DV / 32];
    float2 stats[kAhead][2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int token = Rows::token(a, r);
      count[r] = rows.word(s, r).count;
      first[r] = Base::first_part(a, tile, token) + Rows::row(r) - token * a.group_size;
    }
    const auto load = [&](int slot, int i) {
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        // Behind the last part any other, unused: loads under a condition cost twice the registers.
        const uint32_t row = i < count[r] ? first[r] + i * a.group_size : 0;
        stats[slot][r] = from.stats[row];
        const uint4* piece = parts + sm80::first_of_part(row, DV);
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
          for (int c = 0; c < DV / 32; ++c) add_piece(pieces[j][r][c], weight, c, r, out);
        }
        load(j, base + j + kAhead);
      }
    }
    end_sums(softmax);
  }
};

}  // namespace nsa::device::sm90
