#pragma once
#include "nsa/kernels/interval/sm90/interval_backward_launch.h"

namespace nsa::kernels::sm80 {

/// As those of sm_90, by code of sm_80.
sm90::BackwardFunction backward_64_64_bf16, backward_64_64_fp16, backward_128_128_bf16,
    backward_128_128_fp16, backward_192_128_bf16, backward_192_128_fp16, backward_256_256_bf16,
    backward_256_256_fp16;

}  // namespace nsa::kernels::sm80
