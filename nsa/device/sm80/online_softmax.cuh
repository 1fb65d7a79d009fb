// Softmax over keys that come tile by tile, in the registers of mma.sync accumulators.
#pragma once
#include "nsa/device/sm80/mma.cuh"

namespace nsa::device::sm80 {

/// Scaled logits from which on the product of maximum and scale is rounded by so much that it shows
/// beside the rounding of probabilities to 16 bits: the maximum is then subtracted first.
constexpr float kFarLogit = 512.f;

/// Running maximum and sum of the two rows a thread shares with its quad.
struct OnlineSoftmax {
  float peak[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.f, 0.f};
  float rescale[2] = {1.f, 1.f};

  /// Logits of 64 keys -> probabilities relative to the running maximum.
  __device__ void step(float (&scores)[8][4], float scale_log2) {
    float top[2] = {peak[0], peak[1]}, shift[2];
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        top[r] = fmaxf(top[r], fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
    float first[2];  // subtracted before scaling
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
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
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[j][i] -= first[i / 2];
    }
    float part[2] = {0.f, 0.f};
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[j][i] = fast_exp2(fmaf(scores[j][i], scale_log2, -shift[i / 2]));
        part[i / 2] += scores[j][i];
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = sum[r] * rescale[r] + part[r];
  }
  /// Brings sums relative to the last maximum to the new one.
  template <int kChunks>
  __device__ void rescale_rows(float (&out)[kChunks][4]) const {
    // Mostly no maximum of a warp's rows moved; a factor of 1 changes no bits.
    if (__all_sync(~0u, rescale[0] == 1.f && rescale[1] == 1.f)) return;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) out[c][i] *= rescale[i / 2];
  }
  /// The sums of a row's four threads together.
  __device__ void finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(~0u, sum[r], 1);
      sum[r] += __shfl_xor_sync(~0u, sum[r], 2);
    }
  }
};

}  // namespace nsa::device::sm80
