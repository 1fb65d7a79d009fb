#pragma once
#include "nsa/kernels/selected/rows/row_attention.h"

/// One function per instantiation of row attention: row_DK_DV_(type).
namespace nsa::kernels::portable {

using RowFunction = cudaError_t(const RowAttention&, cudaStream_t);
using RowLaunch = RowFunction*;
RowFunction row_64_64_bf16, row_64_64_fp16, row_128_128_bf16, row_128_128_fp16, row_192_128_bf16,
    row_192_128_fp16, row_256_256_bf16, row_256_256_fp16;

}  // namespace nsa::kernels::portable
