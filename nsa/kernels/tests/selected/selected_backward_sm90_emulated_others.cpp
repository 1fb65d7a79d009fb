// What goes before and behind the products of the selected branch's backward pass, compiled as C++
// for the emulator, and stubs of what its test does not ask for.
#include "nsa/kernels/interval/interval_rows.h"
#include "nsa/kernels/interval/sm80/interval_backward_launch.h"
#include "nsa/kernels/selected/selected_sums.cu"
#include "nsa/kernels/selected/sm80/selected_backward_launch.h"
#include "nsa/kernels/selected/sm90/selected_early.cu"
#include "nsa/kernels/selected/tile_index.cu"

namespace nsa::kernels {

const char* unsupported_reason(const IntervalAttention&) { return "not emulated"; }

#define NSA_INSTANCES(NSA_OF, dims) NSA_OF(dims##_bf16) NSA_OF(dims##_fp16)

namespace sm80 {
#define NSA_NOT_EMULATED(instance)                                                            \
  cudaError_t selected_backward_##instance(const SelectedBackward&, int, const SelectedPlan&, \
                                           void*, int, cudaStream_t) {                        \
    return cudaErrorNotSupported;                                                             \
  }                                                                                           \
  cudaError_t backward_##instance(const IntervalBackward&, const sm90::BackwardPlan&,         \
                                  cudaStream_t) {                                             \
    return cudaErrorNotSupported;                                                             \
  }
NSA_INSTANCES(NSA_NOT_EMULATED, 64_64)
NSA_INSTANCES(NSA_NOT_EMULATED, 128_128)
NSA_INSTANCES(NSA_NOT_EMULATED, 192_128)
NSA_INSTANCES(NSA_NOT_EMULATED, 256_256)
#undef NSA_NOT_EMULATED
}  // namespace sm80

namespace portable {
cudaError_t prepare_rows(const IntervalBackward&, const sm90::BackwardPlan&, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t finish_gradients(const IntervalBackward&, const sm90::BackwardPlan&, cudaStream_t) {
  return cudaErrorNotSupported;
}
}  // namespace portable

namespace sm90 {
#define NSA_NOT_EMULATED(instance)                                                              \
  cudaError_t backward_##instance(const IntervalBackward&, const BackwardPlan&, cudaStream_t) { \
    return cudaErrorNotSupported;                                                               \
  }
NSA_INSTANCES(NSA_NOT_EMULATED, 64_64)
NSA_INSTANCES(NSA_NOT_EMULATED, 128_128)
NSA_INSTANCES(NSA_NOT_EMULATED, 192_128)
#undef NSA_NOT_EMULATED
#define NSA_NOT_EMULATED(instance)                                                            \
  cudaError_t selected_backward_##instance(const SelectedBackward&, int, const SelectedPlan&, \
                                           void*, int, cudaStream_t) {                        \
    return cudaErrorNotSupported;                                                             \
  }                                                                                           \
  cudaError_t selected_early_##instance(const SelectedEarly&, cudaStream_t) {                 \
    return cudaErrorNotSupported;                                                             \
  }
NSA_NOT_EMULATED(64_64_fp16)
NSA_NOT_EMULATED(192_128_fp16)
#ifdef __SANITIZE_ADDRESS__
NSA_NOT_EMULATED(128_128_fp16)
#endif
#undef NSA_NOT_EMULATED
}  // namespace sm90

}  // namespace nsa::kernels
