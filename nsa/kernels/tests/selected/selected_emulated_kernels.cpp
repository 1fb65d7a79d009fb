// Kernels of the selected branch in the order of keys, compiled as C++ for the emulator, and stubs
// of what sm_90a alone has.
#include "nsa/kernels/common/shared_bytes.h"
#include "nsa/kernels/selected/selected_sums.cu"
#include "nsa/kernels/selected/sm80/instances/selected_backward_128_128_bf16.cu"
#include "nsa/kernels/selected/sm80/instances/selected_backward_128_128_fp16.cu"
#include "nsa/kernels/selected/sm80/instances/selected_backward_192_128_bf16.cu"
#include "nsa/kernels/selected/sm80/instances/selected_backward_192_128_fp16.cu"
#include "nsa/kernels/selected/sm80/instances/selected_backward_256_256_bf16.cu"
#include "nsa/kernels/selected/sm80/instances/selected_backward_256_256_fp16.cu"
#include "nsa/kernels/selected/sm80/instances/selected_backward_64_64_bf16.cu"
#include "nsa/kernels/selected/sm80/instances/selected_backward_64_64_fp16.cu"
#include "nsa/kernels/selected/sm90/selected_backward_launch.h"
#include "nsa/kernels/selected/sm90/selected_early_launch.h"
#include "nsa/kernels/selected/tile_index.cu"

namespace nsa::kernels::sm80 {

// What a card is asked for before the launch.
template <int DK, int DV>
constexpr bool kAsksForItsBytes = SelectedBackwardKernel<DK, DV, __half>::kSharedBytes ==
                                  static_cast<int>(shared_bytes_of(DK, DV).selected_backward);
static_assert(kAsksForItsBytes<64, 64> && kAsksForItsBytes<128, 128> &&
              kAsksForItsBytes<192, 128> && kAsksForItsBytes<256, 256>);

}  // namespace nsa::kernels::sm80
namespace nsa::kernels::sm90 {

#define NSA_NOT_EMULATED(instance)                                                            \
  cudaError_t selected_backward_##instance(const SelectedBackward&, int, const SelectedPlan&, \
                                           void*, int, cudaStream_t) {                        \
    return cudaErrorNotSupported;                                                             \
  }                                                                                           \
  cudaError_t selected_early_##instance(const SelectedEarly&, cudaStream_t) {                 \
    return cudaErrorNotSupported;                                                             \
  }
NSA_NOT_EMULATED(64_64_bf16)
NSA_NOT_EMULATED(64_64_fp16)
NSA_NOT_EMULATED(128_128_bf16)
NSA_NOT_EMULATED(128_128_fp16)
NSA_NOT_EMULATED(192_128_bf16)
NSA_NOT_EMULATED(192_128_fp16)
#undef NSA_NOT_EMULATED

void choose_chunks(const IntervalAttention&, BackwardPlan&) {}
cudaError_t read_tile_words(const SelectedEarly&, const int32_t*, int, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t mend_early(const SelectedEarly&, cudaStream_t) { return cudaErrorNotSupported; }

}  // namespace nsa::kernels::sm90
