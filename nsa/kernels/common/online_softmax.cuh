// Softmax over keys that come tile by tile, in the registers of an accumulator of mma.sync or
// wgmma.
#pragma once
#include <type_traits>

#include "nsa/kernels/common/mma.cuh"

namespace nsa::kernels::portable {

/// Scaled logits from which on the product of maximum and scale is rounded by so much that it shows
/// beside the rounding of probabilities to 16 bits: the maximum is then subtracted first.
constexpr float kFarLogit = 512.f;

/// Accumulators of mma.sync, four values every 8 columns, as one of wgmma.
template <int kTiles>
struct MmaValues {
  float (&of)[kTiles][4];
  __device__ __forceinline__ float& operator()(int i) const { return of[i / 4][i % 4]; }
};
template <int kTiles>
std::integral_constant<int, kTiles * 4> size(const MmaValues<kTiles>&);  // asked for its type only

/// Running maximum and sum of the two rows a thread shares with its quad.
struct OnlineSoftmax {
  float peak[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.f, 0.f};
  float rescale[2];

  /// scores -> probabilities relative to the running maximum. `scores` has the accumulator's
  /// order: pairs of columns, row 0 then row 1, every 8 columns.
  template <typename Scores>
  __device__ __forceinline__ void step(Scores& scores, float scale_log2) {
    constexpr int kCount = decltype(size(scores))::value;
    float top[2] = {peak[0], peak[1]}, shift[2];
#pragma unroll
    for (int i = 0; i < kCount; i += 2)
      top[(i / 2) % 2] = fmaxf(top[(i / 2) % 2], fmaxf(scores(i), scores(i + 1)));
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
#pragma unroll
      for (int r = 0; r < 2; ++r) top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], mask));
    }
    float first[2];  // subtracted before scaling
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = top[r] == -INFINITY ? 0.f : top[r];
      rescale[r] = peak[r] == -INFINITY ? 0.f : fast_exp2((peak[r] - base) * scale_log2);
      peak[r] = top[r];
      shift[r] = base * scale_log2;
      const bool far = !(fabsf(shift[r]) < kFarLogit);
      first[r] = far ? base : 0.f;
      shift[r] = far ? 0.f : shift[r];
    }
    if (first[0] != 0.f || first[1] != 0.f) {  // 0 changes no bits: no row depends on another
#pragma unroll
      for (int i = 0; i < kCount; ++i) scores(i) -= first[(i / 2) % 2];
    }
    float part[2] = {0.f, 0.f};
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
      const int r = (i / 2) % 2;
      scores(i) = fast_exp2(fmaf(scores(i), scale_log2, -shift[r]));
      scores(i + 1) = fast_exp2(fmaf(scores(i + 1), scale_log2, -shift[r]));
      part[r] += scores(i) + scores(i + 1);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = sum[r] * rescale[r] + part[r];
  }
  template <int kTiles>
  __device__ __forceinline__ void step(float (&scores)[kTiles][4], float scale_log2) {
    const MmaValues<kTiles> values{scores};
    step(values, scale_log2);
  }
  /// Brings sums relative to the last maximum (`out`, in the order of `scores`) to the new one.
  template <typename Out>
  __device__ __forceinline__ void rescale_rows(Out& out) const {
    // Mostly no maximum of a warp's rows moved; a factor of 1 changes no bits.
    if (__all_sync(~0u, rescale[0] == 1.f && rescale[1] == 1.f)) return;
#pragma unroll
    for (int i = 0; i < decltype(size(out))::value; ++i) out(i) *= rescale[(i / 2) % 2];
  }
  template <int kTiles>
  __device__ __forceinline__ void rescale_rows(float (&out)[kTiles][4]) const {
    const MmaValues<kTiles> values{out};
    rescale_rows(values);
  }
  /// The sums of a row's four threads together.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }
};

}  // namespace nsa::kernels::portable
