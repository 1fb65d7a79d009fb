// The work of one warp in a decode step: the heads of a group, as the rows of products, attend
// tiles of 16 cached keys, each copied into a ring of the warp's own.
#pragma once
#include "nsa/kernels/common/mma.cuh"

namespace nsa::kernels::portable {

constexpr int kDecodeTile = 16;

/// Online softmax of 16 rows: thread i holds rows i % 32 / 4 and + 8, as accumulators lie.
template <int DV>
struct DecodeSums {
  float out[DV / 8][4];
  float peak[2], sum[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < DV / 8 * 4; ++i) out[i / 4][i % 4] = 0.f;
#pragma unroll
    for (int r = 0; r < 2; ++r) peak[r] = -INFINITY, sum[r] = 0.f;
  }
};

/// 2^(whole + kBias), exactly; 0 below 2^-126.
template <int kBias = 0>
__device__ __forceinline__ float whole_power(float whole) {
  // The sum's last bits are the whole number: what is rounded off has none.
  const float sum = fmaxf(whole, -127.f - kBias) + (12582912.f + kBias);
  return __int_as_float((__float_as_int(sum) << 23) + 0x3f800000);
}

/// Where unit sums of a tile's compressed blocks are kept, [heads] rows each: per selection block
/// the sum of its blocks' weighted exponentials. A unit is four blocks long then, of two strides
/// each, and the last block counts half here and half in the next unit: the carry. Exponentials are
/// relative to 2^(reference - kUnitBias), one reference a tile, a whole number, so that equal
/// logits give equal scores in every tile.
struct UnitSums {
  float *first, *carry, *reference;  // of the tile
  int stride, tile_stride, heads;
  int carrying;  // unit of the tile whose carry is kept
};
constexpr int kUnitBias = 60;  // room below the reference before bits are lost

template <int DK, int DV, int kStages, typename T>
struct DecodeTiles {
  static constexpr int kKeyBytes = kDecodeTile * DK * 2, kStageBytes = kDecodeTile * (DK + DV) * 2;
  static_assert(kStages * kStageBytes >= 16 * DV * 4, "a ring has room for the parts of a warp");

  /// Bytes from the start of rows of `kColumns` elements; 16-byte pieces swizzled by row.
  template <int kColumns>
  __device__ static uint32_t offset(int row, int piece) {
    return row * kColumns * 2 + (piece ^ (row % 8)) * 16;
  }

  /// Rows of one tile, of which this lane copies rows lane / 8 + 4 i: those of the cache in `rows`.
  /// `from` is where its piece, lane % 8, of row 0 is, `place` the offset of that piece in a tile.
  template <int kColumns>
  __device__ __forceinline__ static void copy_rows(uint32_t to, uint32_t place, const char* from,
                                                   int stride, const int (&rows)[4]) {
#pragma unroll
    for (int pass = 0; pass < 4; ++pass) {
      const char* x = from + int64_t(rows[pass]) * stride;
      // Of rows 4 apart one bit of the swizzle differs.
      const uint32_t target = ((to + place) ^ (pass % 2 * 64)) + pass * 4 * kColumns * 2;
#pragma unroll
      for (int segment = 0; segment < kColumns / 64; ++segment)
        copy_async(target + segment * 128, x + segment * 128);
    }
  }

  /// Puts a row into a tile, a piece of 16 bytes of its key and value a thread.
  __device__ __forceinline__ static void put_row(uint32_t tile, int row, const uint4* pieces) {
    for (int i = threadIdx.x % 32; i < (DK + DV) / 8; i += 32)
      store_shared(
          tile + (i < DK / 8 ? offset<DK>(row, i) : kKeyBytes + offset<DV>(row, i - DK / 8)),
          pieces[i]);
  }

  /// One tile of which the first `attended` keys count. `keep(scores, top)` sees its logits, -inf
  /// for keys that do not count, and the largest of each row.
  template <typename Keep>
  __device__ __forceinline__ static void consume(uint32_t tile, int attended,
                                                 const uint32_t (&q)[DK / 16][4], float scale_log2,
                                                 const Keep& keep, DecodeSums<DV>& sums) {
    const int lane = threadIdx.x % 32;
    float scores[2][4] = {}, odd[2][4] = {};  // two tiles of 8 keys; two chains each
    // Tiles are aligned to 128 bytes: of the pieces of a row the address differs in three bits.
    const uint32_t keys = tile + offset<DK>((lane / 16) * 8 + lane % 8, (lane / 8) % 2);
#pragma unroll
    for (int c = 0; c < DK / 16; ++c) {
      uint32_t frag[4];
      load_matrices(frag, (keys ^ (c % 4 * 32)) + c / 4 * 128);
      multiply_add<T>(c % 2 ? odd[0] : scores[0], q[c], frag[0], frag[1]);
      multiply_add<T>(c % 2 ? odd[1] : scores[1], q[c], frag[2], frag[3]);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) scores[j / 4][j % 4] += odd[j / 4][j % 4];
    if (attended < kDecodeTile) {
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
    const uint32_t values = tile + kKeyBytes + offset<DV>(lane % 16, lane / 16);
#pragma unroll
    for (int c = 0; c < DV / 16; ++c) {
      uint32_t frag[4];
      load_matrices_transposed(frag, (values ^ (c % 4 * 32)) + c / 4 * 128);
      multiply_add<T>(sums.out[2 * c], p, frag[0], frag[1]);
      multiply_add<T>(sums.out[2 * c + 1], p, frag[2], frag[3]);
    }
  }

  /// Logits of a tile to `first`, [heads][stride] with an even stride.
  __device__ __forceinline__ static void keep_logits(const float (&scores)[2][4], float* first,
                                                     int stride, int heads) {
    const int lane = threadIdx.x % 32;
    float* to = first + lane / 4 * stride + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (lane / 4 + 8 * r >= heads) continue;
#pragma unroll
      for (int j = 0; j < 2; ++j)
        *reinterpret_cast<float2*>(to + r * 8 * stride + j * 8) =
            make_float2(scores[j][2 * r], scores[j][2 * r + 1]);
    }
  }

  /// Unit sums of row r, whose largest logit in the tile is `top`. Of the four threads of a row two
  /// hold units 0 and 2, the others 1 and 3.
  __device__ __forceinline__ static void keep_unit_sums(const float (&scores)[2][4], int r,
                                                        float top, float scale_log2,
                                                        const UnitSums& kept) {
    const int lane = threadIdx.x % 32, place = lane % 4, head = lane / 4 + 8 * r;
    const float reference = top == -INFINITY ? 0.f : rintf(top * scale_log2);
    float e[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      // Of a key that does not count the weight is 2^-huge: 0.
      const float x = fmaxf(scores[j / 2][2 * r + j % 2], -1e30f) * scale_log2, whole = rintf(x);
      e[j] = fast_exp2(x - whole) * whole_power<kUnitBias>(whole - reference);
    }
    const float weight = place % 2 == 0 ? 2.f : 1.f;  // of the second block of a pair
    float low = fmaf(weight, e[1], 2.f * e[0]), high = fmaf(weight, e[3], 2.f * e[2]);
    low += __shfl_xor_sync(~0u, low, 1);
    high += __shfl_xor_sync(~0u, high, 1);
    const float other_low = __shfl_xor_sync(~0u, e[1], 2),
                other_high = __shfl_xor_sync(~0u, e[3], 2);
    if (place % 2 == 0 || head >= kept.heads) return;
    float* to = kept.first + head * kept.stride + place / 2;
    to[0] = place == 1 ? low : low + other_low;
    to[2] = high + (place == 1 ? other_low : other_high);
    if (place / 2 == kept.carrying % 2)
      kept.carry[head * kept.tile_stride] = kept.carrying < 2 ? e[1] : e[3];
    if (place == 1) kept.reference[head * kept.tile_stride] = reference;
  }

  /// Logits of row r, `top` the largest, to weights below the new maximum; returns what earlier
  /// sums shrink by.
  __device__ static float weigh(float (&scores)[2][4], int r, float top, float scale_log2,
                                DecodeSums<DV>& sums) {
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
  __device__ __forceinline__ static void leave(DecodeSums<DV>& sums, float* parts, float2* stats) {
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
