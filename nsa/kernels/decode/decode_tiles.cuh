// What a warp keeps of its tiles of 16 cached keys in a decode step: logits or sums of them, from
// which blocks are scored, and the new token's row.
#pragma once
#include "nsa/kernels/common/warp_tiles.cuh"

namespace nsa::kernels::portable {

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

/// A tile's values lie behind its keys, a stage of the warp's ring.
template <int DK, int DV, int kStages, typename T>
struct DecodeTiles : WarpTiles<DK, DV, T> {
  using Tiles = WarpTiles<DK, DV, T>;
  static constexpr int kStageBytes = Tiles::kKeyBytes + Tiles::kValueBytes;
  static_assert(kStages * kStageBytes >= Tiles::kPartBytes, "room for the parts of a warp");

  /// Rows of one tile, of which this lane copies rows lane / 8 + 4 i: those in `rows`, `stride`
  /// bytes apart. `from` is where its piece, lane % 8, of row 0 is, `place` the offset of that
  /// piece in a tile.
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
          tile + (i < DK / 8 ? Tiles::template offset<DK>(row, i)
                             : Tiles::kKeyBytes + Tiles::template offset<DV>(row, i - DK / 8)),
          pieces[i]);
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
};

}  // namespace nsa::kernels::portable
