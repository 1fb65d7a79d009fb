// Products of 64-row tiles in shared memory by warps, with mma.sync.
#pragma once
#include "nsa/kernels/common/mma.cuh"

namespace nsa::kernels::sm80 {

/// Bytes from the start of a tile to 16-byte piece `piece` of row `row`. A row has kColumns 2-byte
/// elements, a multiple of 64; pieces of each 128 bytes are swizzled by row, so that eight rows of
/// a column lie in different banks.
template <int kColumns>
__device__ __forceinline__ uint32_t piece_of_tile(int row, int piece) {
  return row * (kColumns * 2) + piece / 8 * 128 + (piece % 8 ^ row % 8) * 16;
}

/// Accumulators of 16 rows and kTiles * 8 columns: values 0 and 1 of a tile are columns
/// lane % 4 * 2 and the next of row lane / 4, values 2 and 3 those of row lane / 4 + 8.
template <int kTiles>
using Accumulators = float[kTiles][4];

/// sums += a b^T: 16 rows of one tile, from `a_row` on, with 32 rows of another one, from `b_row`
/// on; addresses in shared memory.
template <int kColumns, typename T>
__device__ __forceinline__ void multiply_rows(Accumulators<4>& sums, uint32_t a_tile, int a_row,
                                              uint32_t b_tile, int b_row) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int c = 0; c < kColumns / 16; ++c) {
    uint32_t a[4];
    load_matrices(a, a_tile + piece_of_tile<kColumns>(a_row + lane % 16, c * 2 + lane / 16));
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t b[4];
      load_matrices(b, b_tile + piece_of_tile<kColumns>(b_row + j * 16 + lane / 16 * 8 + lane % 8,
                                                        c * 2 + lane / 8 % 2));
      multiply_add<T>(sums[2 * j], a, b[0], b[1]);
      multiply_add<T>(sums[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/// The A operand of 16 rows and 64 columns.
using RowOperand = uint32_t[4][4];

/// Rows from `first` on of a tile of 64 columns.
__device__ __forceinline__ void load_rows(RowOperand& a, uint32_t tile, int first) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    load_matrices(a[i], tile + piece_of_tile<64>(first + lane % 16, i * 2 + lane / 16));
}
/// Columns from `first` on of a tile of 64 columns, as rows.
__device__ __forceinline__ void load_columns(RowOperand& a, uint32_t tile, int first) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    load_matrices_transposed(a[i], tile + piece_of_tile<64>(i * 16 + lane / 16 * 8 + lane % 8,
                                                            first / 8 + lane / 8 % 2));
}

/// sums += a b for 32 columns of b, a tile of 64 rows, from 16-byte piece `piece` on.
template <int kColumns, typename T>
__device__ __forceinline__ void multiply_columns(Accumulators<4>& sums, const RowOperand& a,
                                                 uint32_t b_tile, int piece) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t b[4];
      load_matrices_transposed(
          b, b_tile + piece_of_tile<kColumns>(i * 16 + lane % 16, piece + j * 2 + lane / 16));
      multiply_add<T>(sums[2 * j], a[i], b[0], b[1]);
      multiply_add<T>(sums[2 * j + 1], a[i], b[2], b[3]);
    }
  }
}

}  // namespace nsa::kernels::sm80
