#pragma once
#include "nsa/kernels/selected/rows/row_attention.h"

namespace nsa::kernels::portable {

/// A row has four warps, or, within these limits, one.
constexpr int kMostRangesOfWarp = 32, kMostColumnsOfWarp = 128;  // of v

/// One function per instantiation of row attention: row_DK_DV_(type).
using RowFunction = cudaError_t(const RowAttention&, int warps_of_row, cudaStream_t);
using RowLaunch = RowFunction*;
RowFunction row_64_64_bf16, row_64_64_fp16, row_128_128_bf16, row_128_128_fp16, row_192_128_bf16,
    row_192_128_fp16, row_256_256_bf16, row_256_256_fp16;

}  // namespace nsa::kernels::portable
