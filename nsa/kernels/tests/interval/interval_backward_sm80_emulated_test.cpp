// The backward pass of interval attention as sm_80 code, run on the CPU and judged by fp64.
#include "nsa/kernels/interval/interval_rows.cu"
#include "nsa/kernels/interval/sm80/instances/interval_backward_128_128_bf16.cu"
#include "nsa/kernels/interval/sm80/instances/interval_backward_128_128_fp16.cu"
#include "nsa/kernels/interval/sm80/instances/interval_backward_192_128_bf16.cu"
#include "nsa/kernels/interval/sm80/instances/interval_backward_192_128_fp16.cu"
#include "nsa/kernels/interval/sm80/instances/interval_backward_256_256_bf16.cu"
#include "nsa/kernels/interval/sm80/instances/interval_backward_256_256_fp16.cu"
#include "nsa/kernels/interval/sm80/instances/interval_backward_64_64_bf16.cu"
#include "nsa/kernels/interval/sm80/instances/interval_backward_64_64_fp16.cu"

// The launcher's other code is not there.
namespace nsa::kernels {
const char* unsupported_reason(const IntervalAttention&) { return nullptr; }
namespace sm90 {
#define NSA_ABSENT(name)                                                         \
  cudaError_t name(const IntervalBackward&, const BackwardPlan&, cudaStream_t) { \
    return cudaErrorNotSupported;                                                \
  }
NSA_ABSENT(backward_64_64_bf16)
NSA_ABSENT(backward_64_64_fp16)
NSA_ABSENT(backward_128_128_bf16)
NSA_ABSENT(backward_128_128_fp16)
NSA_ABSENT(backward_192_128_bf16)
NSA_ABSENT(backward_192_128_fp16)
#undef NSA_ABSENT
}  // namespace sm90
}  // namespace nsa::kernels

namespace nsa::kernels::testing {
constexpr Code kCode = Code::kSm80;
namespace under_test = sm80;
}  // namespace nsa::kernels::testing
#include "nsa/kernels/tests/interval/interval_backward_emulated_tests.h"
