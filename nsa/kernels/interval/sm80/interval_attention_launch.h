#pragma once
#include "nsa/kernels/interval/interval_attention.h"

/// One function per instantiation of interval attention, interval_DK_DV_(type), with and without
/// the choice of blocks.
namespace nsa::kernels::sm80 {

using IntervalFunction = cudaError_t(const IntervalAttention&, cudaStream_t);
using IntervalLaunch = IntervalFunction*;
IntervalFunction interval_64_64_bf16, interval_64_64_fp16, interval_128_128_bf16,
    interval_128_128_fp16, interval_192_128_bf16, interval_192_128_fp16, interval_256_256_bf16,
    interval_256_256_fp16;

}  // namespace nsa::kernels::sm80
