// The work of one warp that attends tiles of 16 keys: the heads of a group are the rows of
// products. Each warp has tiles and a softmax of its own; the sums of several warps are joined at
// the end.
#pragma once
#include "nsa/kernels/common/mma.cuh"

namespace nsa::kernels::portable {

constexpr int kWarpTile = 16;  // keys

/// Online softmax of 16 rows: thread i holds rows i % 32 / 4 and + 8, as accumulators lie.
template <int DV>
struct WarpSums {
  float out[DV / 8][4];
  float peak[2], sum[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < DV / 8 * 4; ++i) out[i / 4][i % 4] = 0.f;
#pragma unroll
    for (int r = 0; r < 2; ++r) peak[r] = -INFINITY, sum[r] = 0.f;
  }
};

template <int DK, int DV, typename T>
struct WarpTiles {
  static constexpr int kKeyBytes = kWarpTile * DK * 2, kValueBytes = kWarpTile * DV * 2;
  static constexpr int kPartBytes = 16 * DV * 4;  // what `leave` writes

  /// Bytes from the start of rows of `kColumns` elements; 16-byte pieces swizzled by row.
  template <int kColumns>
  __device__ static uint32_t offset(int row, int piece) {
    return row * kColumns * 2 + (piece ^ (row % 8)) * 16;
  }

  /// A tile's keys and values, of which the first `attended` count. `keep(scores, top)` sees its
  /// logits, -inf for keys that do not count, and the largest of each row.
  template <typename Keep>
  __device__ __forceinline__ static void consume(uint32_t keys, uint32_t values, int attended,
                                                 const uint32_t (&q)[DK / 16][4], float scale_log2,
                                                 const Keep& keep, WarpSums<DV>& sums) {
    const int lane = threadIdx.x % 32;
    float scores[2][4] = {}, odd[2][4] = {};  // two tiles of 8 keys; two chains each
    // Tiles are aligned to 128 bytes: of the pieces of a row the address differs in three bits.
    keys += offset<DK>((lane / 16) * 8 + lane % 8, (lane / 8) % 2);
#pragma unroll
    for (int c = 0; c < DK / 16; ++c) {
      uint32_t frag[4];
      load_matrices(frag, (keys ^ (c % 4 * 32)) + c / 4 * 128);
      multiply_add<T>(c % 2 ? odd[0] : scores[0], q[c], frag[0], frag[1]);
      multiply_add<T>(c % 2 ? odd[1] : scores[1], q[c], frag[2], frag[3]);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) scores[j / 4][j % 4] += odd[j / 4][j % 4];
    if (attended < kWarpTile) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int key = (j / 4) * 8 + (lane % 4) * 2 + j % 2;
        if (key >= attended) scores[j / 4][j % 4] = -INFINITY;
      }
    }
    float top[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(fmaxf(scores[0][2 * r], scores[0][2 * r + 1]),
                     fmaxf(scores[1][2 * r], scores[1][2 * r + 1]));
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], 2));
    }
    keep(scores, top);
    float rescale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) rescale[r] = weigh(scores, r, top[r], scale_log2, sums);
    if (__any_sync(~0u, rescale[0] != 1.f || rescale[1] != 1.f)) {
#pragma unroll
      for (int c = 0; c < DV / 8; ++c)
#pragma unroll
        for (int j = 0; j < 4; ++j) sums.out[c][j] *= rescale[j / 2];
    }
    const uint32_t p[4] = {pack<T>(scores[0][0], scores[0][1]), pack<T>(scores[0][2], scores[0][3]),
                           pack<T>(scores[1][0], scores[1][1]),
                           pack<T>(scores[1][2], scores[1][3])};
    values += offset<DV>(lane % 16, lane / 16);
#pragma unroll
    for (int c = 0; c < DV / 16; ++c) {
      uint32_t frag[4];
      load_matrices_transposed(frag, (values ^ (c % 4 * 32)) + c / 4 * 128);
      multiply_add<T>(sums.out[2 * c], p, frag[0], frag[1]);
      multiply_add<T>(sums.out[2 * c + 1], p, frag[2], frag[3]);
    }
  }

  /// Logits of row r, `top` the largest, to weights below the new maximum; returns what earlier
  /// sums shrink by.
  __device__ static float weigh(float (&scores)[2][4], int r, float top, float scale_log2,
                                WarpSums<DV>& sums) {
    top = fmaxf(top, sums.peak[r]);
    const float base = top == -INFINITY ? 0.f : top;
    const float rescale =
        sums.peak[r] == -INFINITY ? 0.f : fast_exp2((sums.peak[r] - base) * scale_log2);
    sums.peak[r] = top;
    float part = 0.f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // Subtracted first: the product of a large maximum and the scale would be rounded.
      float& s = scores[j / 2][2 * r + j % 2];
      s = fast_exp2((s - base) * scale_log2);
      part += s;
    }
    sums.sum[r] = sums.sum[r] * rescale + part;
    return rescale;
  }

  /// Place of four columns (4 * quarter and on) of a head in the parts that `leave` writes.
  __device__ static int place(int head, int quarter) {
    return head * DV + ((quarter / 2) ^ (head % 8)) * 8 + quarter % 2 * 4;
  }

  /// Puts the sums of this warp into shared memory: out [16][DV] fp32, (maximum, sum) a head.
  __device__ __forceinline__ static void leave(WarpSums<DV>& sums, float* parts, float2* stats) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = sums.sum[r];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      const int head = lane / 4 + 8 * r;
      if (lane % 4 == 0) stats[head] = make_float2(sums.peak[r], sum);
#pragma unroll
      for (int c = 0; c < DV / 8; ++c)
        *reinterpret_cast<float2*>(parts + head * DV + (c ^ (head % 8)) * 8 + lane % 4 * 2) =
            make_float2(sums.out[c][2 * r], sums.out[c][2 * r + 1]);
    }
  }
};

/// What sums below the maximum `peak` count for in those below `top`; 0 where there were no keys.
__device__ __forceinline__ float share_of(float peak, float top, float scale_log2) {
  return fast_exp2((peak - (top == -INFINITY ? 0.f : top)) * scale_log2);
}

/// (maximum, sum) of the keys of all parts together.
template <int kParts>
__device__ __forceinline__ float2 joined(const float2 (&parts)[kParts], float scale_log2) {
  float2 all = make_float2(-INFINITY, 0.f);
#pragma unroll
  for (int i = 0; i < kParts; ++i) all.x = fmaxf(all.x, parts[i].x);
#pragma unroll
  for (int i = 0; i < kParts; ++i) all.y += share_of(parts[i].x, all.x, scale_log2) * parts[i].y;
  return all;
}

}  // namespace nsa::kernels::portable
