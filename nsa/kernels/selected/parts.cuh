// Order of the parts of rows that the selected branch leaves in its workspace.
#pragma once
#include <cstdint>

namespace nsa::kernels::portable {

/// Parts lie in blocks of 8 rows: of every 32 columns first those of row 0, then of row 1 and so
/// on, and of a row the 8 values that each thread of a quad holds (quad.cuh). Index, in 16 bytes,
/// of what thread 0 of a quad holds of a row's first 32 columns; of thread q and columns 32 c and
/// on it is 32 c + q more.
__device__ inline int32_t first_of_part(uint32_t row, uint32_t row_columns) {
  return static_cast<int32_t>((row >> 3) * row_columns + (row & 7) * 4);
}
/// The row again.
__device__ inline uint32_t row_of_part(uint32_t first, uint32_t row_columns) {
  return first / row_columns * 8 + first % row_columns / 4;
}
constexpr int32_t kNoPart = -1;

}  // namespace nsa::kernels::portable
