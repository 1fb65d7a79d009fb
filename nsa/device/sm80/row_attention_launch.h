#pragma once
#include "nsa/device/row_attention.h"

/// One function per instantiation of row attention: row_DK_DV_(type).
namespace nsa::device::sm80 {

using RowLaunch = cudaError_t (*)(const RowAttention&, cudaStream_t);

cudaError_t row_64_64_bf16(const RowAttention&, cudaStream_t);
cudaError_t row_64_64_fp16(const RowAttention&, cudaStream_t);
cudaError_t row_128_128_bf16(const RowAttention&, cudaStream_t);
cudaError_t row_128_128_fp16(const RowAttention&, cudaStream_t);
cudaError_t row_192_128_bf16(const RowAttention&, cudaStream_t);
cudaError_t row_192_128_fp16(const RowAttention&, cudaStream_t);

}  // namespace nsa::device::sm80
