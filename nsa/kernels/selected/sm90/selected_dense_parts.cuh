// Rows of the kernel for whole tiles under masks begin with the sum of the parts that the order of
// keys left of their others, in the order of tiles.
#pragma once
#include "nsa/kernels/selected/sm90/masked_rows.cuh"
#include "nsa/kernels/selected/sm90/selected_dense_loads.cuh"

namespace nsa::kernels::sm90 {

template <int DK, int DV, typename T>
struct SelectedDenseParts : SelectedDenseLoads<DK, DV, T> {
  using Base = SelectedDenseLoads<DK, DV, T>;
  using typename Base::Cuda;
  using typename Base::Rows;
  using typename Base::Shared;
  using typename Base::Tile;
  using typename Base::Walk;

  /// Adds a part of each of the two rows, of those that have it.
  template <class Out>
  CUTE_DEVICE static void add_part(const uint4* place, const int (&piece)[2], const bool (&has)[2],
                                   const float (&weights)[2], Out& out) {
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (!has[r]) continue;
      CUTE_UNROLL
      for (int c = 0; c < DV / 32; ++c)
        add_piece<Cuda>(load_copied(place + piece[r] + c * 32), weights[r], c, r, out);
    }
  }
  /// A place whose parts all lanes of the warp have read.
  template <class Out>
  CUTE_DEVICE static void give_back(uint64_t& empty, Out& out) {
    warpgroup_fence_operand(out);              // the pieces are read
    cutlass::arch::fence_view_async_shared();  // plain loads -> the next copy
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive_at(empty);
  }
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
          stats[i] = first + i < count[r]
                         ? load_copied(s.stats[walk.stage] + described[r] + i * a.group_size)
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
      // A place is given back as soon as it is read, so that up to four copies are on the way.
      if (halves) wait_for(s.v_full[walk.stage], walk.phase);
      add_part(places[0], piece, {first < count[0], first < count[1]}, weights[0], out);
      if (!halves) {
        give_back(s.k_empty[walk.stage], out);
        wait_for(s.v_full[walk.stage], walk.phase);
      }
      add_part(places[1], piece, {first + 1 < count[0], first + 1 < count[1]}, weights[1], out);
      give_back(s.v_empty[walk.stage], out);
      if (halves && threadIdx.x % 32 == 0) arrive_at(s.k_empty[walk.stage]);
    }
    end_sums(softmax);
  }

  /// The same from global memory, for groups that do not fill blocks of 8 rows.
  template <class Out>
  CUTE_DEVICE static void take_parts(const DenseArguments& a, const Shared& s, const Tile& tile,
                                     const Rows& rows, OnlineSoftmax& softmax, Out& out) {
    int count[2];
    uint32_t first[2];
    CUTE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int token = Rows::token(a, r);
      count[r] = rows.word(s, r).count;
      first[r] = Base::first_part(a, tile, token) + Rows::row(r) - token * a.group_size;
    }
    take_parts_of_rows<DV, Cuda>(a, count, first, softmax, out);
  }
};

}  // namespace nsa::kernels::sm90
