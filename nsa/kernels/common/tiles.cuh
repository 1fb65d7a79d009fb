// Tiles of 64 keys in shared memory, copied and read by four warps.
#pragma once
#include "nsa/kernels/common/mma.cuh"

namespace nsa::kernels::portable {

constexpr int kTileKeys = 64;

/// Bytes from the start of a tile of rows of `kColumns` elements; 16-byte pieces swizzled by row.
template <int kColumns>
__device__ uint32_t tile_offset(int row, int piece) {
  return row * kColumns * 2 + (piece ^ (row % 8)) * 16;
}

/// Begins to copy rows 0 to count - 1 (of at most 64) to a tile, zeros behind them; 128 threads.
template <int kColumns, typename T>
__device__ __forceinline__ void copy_tile(uint32_t to, const T* from, int64_t token_stride,
                                          int count) {
  constexpr int kPasses = kTileKeys / 16;
  const int piece = threadIdx.x % 8, row = threadIdx.x / 8;
  const T* source = from + row * token_stride + piece * 8;
  const uint32_t place = to + tile_offset<kColumns>(row, piece);  // row % 8 is that of every pass
  const int64_t step = 16 * token_stride;
  if (count == kTileKeys) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass, source += step)
#pragma unroll
      for (int segment = 0; segment < kColumns / 64; ++segment)
        copy_async(place + pass * 16 * kColumns * 2 + segment * 128, source + segment * 64);
    return;
  }
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass, source += step) {
    const bool valid = row + pass * 16 < count;
#pragma unroll
    for (int segment = 0; segment < kColumns / 64; ++segment)
      copy_async_or_zero(place + pass * 16 * kColumns * 2 + segment * 128,
                         valid ? source + segment * 64 : from, valid);
  }
}

/// Chunks kFirst to kFirst + 7 of scores = 16 rows of Q times the 64 keys of a tile: chunk j,
/// element i of a thread is column j * 8 + (lane % 4) * 2 + i % 2 of row lane / 4 + 8 * (i / 2).
template <int kFirst, int DK, typename T, int kChunks>
__device__ __forceinline__ void multiply_keys(const uint32_t (&q)[DK / 16][4], uint32_t tile,
                                              float (&scores)[kChunks][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = kFirst; j < kFirst + 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[j][i] = 0.f;
#pragma unroll
  for (int c = 0; c < DK / 16; ++c)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      uint32_t keys[4];
      load_matrices(keys, tile + tile_offset<DK>(j * 16 + (lane / 16) * 8 + lane % 8,
                                                 c * 2 + (lane / 8) % 2));
      multiply_add<T>(scores[kFirst + 2 * j], q[c], keys[0], keys[1]);
      multiply_add<T>(scores[kFirst + 2 * j + 1], q[c], keys[2], keys[3]);
    }
}

/// out += probabilities of 16 rows and 64 keys, as multiply_keys leaves scores, times V.
template <int DV, typename T>
__device__ __forceinline__ void multiply_values(const float (&probs)[8][4], uint32_t tile,
                                                float (&out)[DV / 8][4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const auto pair = [&](int chunk, int row) {
      return pack<T>(probs[2 * j + chunk][2 * row], probs[2 * j + chunk][2 * row + 1]);
    };
    const uint32_t p[4] = {pair(0, 0), pair(0, 1), pair(1, 0), pair(1, 1)};
#pragma unroll
    for (int c = 0; c < DV / 16; ++c) {
      uint32_t values[4];
      load_matrices_transposed(values,
                               tile + tile_offset<DV>(j * 16 + lane % 16, c * 2 + lane / 16));
      multiply_add<T>(out[2 * c], p, values[0], values[1]);
      multiply_add<T>(out[2 * c + 1], p, values[2], values[3]);
    }
  }
}

}  // namespace nsa::kernels::portable
