#pragma once
#include "nsa/device/sm90/interval_backward_launch.h"

namespace nsa::device::sm80 {

/// d_k, d_v (or partial sums) and d_q; one function per head dims and type, each in its .cu file.
#define NSA_DECLARE_BACKWARD(dims)                                                       \
  cudaError_t backward_##dims##_bf16(const IntervalBackward&, const sm90::BackwardPlan&, \
                                     cudaStream_t);                                      \
  cudaError_t backward_##dims##_fp16(const IntervalBackward&, const sm90::BackwardPlan&, \
                                     cudaStream_t)
NSA_DECLARE_BACKWARD(64_64);
NSA_DECLARE_BACKWARD(128_128);
NSA_DECLARE_BACKWARD(192_128);
#undef NSA_DECLARE_BACKWARD

}  // namespace nsa::device::sm80
