#pragma once
#include "nsa/device/interval_attention.h"

/// One function per instantiation of interval attention, interval_DK_DV_(type), with and without
/// the choice of blocks.
namespace nsa::device::sm80 {

using IntervalLaunch = cudaError_t (*)(const IntervalAttention&, cudaStream_t);

cudaError_t interval_64_64_bf16(const IntervalAttention&, cudaStream_t);
cudaError_t interval_64_64_fp16(const IntervalAttention&, cudaStream_t);
cudaError_t interval_128_128_bf16(const IntervalAttention&, cudaStream_t);
cudaError_t interval_128_128_fp16(const IntervalAttention&, cudaStream_t);
cudaError_t interval_192_128_bf16(const IntervalAttention&, cudaStream_t);
cudaError_t interval_192_128_fp16(const IntervalAttention&, cudaStream_t);

}  // namespace nsa::device::sm80
