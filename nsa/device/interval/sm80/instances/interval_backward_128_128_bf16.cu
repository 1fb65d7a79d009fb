#include "nsa/device/interval/sm80/interval_backward.cuh"

namespace nsa::device::sm80 {

cudaError_t backward_128_128_bf16(const IntervalBackward& p, const sm90::BackwardPlan& plan,
                                  cudaStream_t stream) {
  return interval_backward<128, 128, 32, 3, 2, __nv_bfloat16>(p, plan, stream);
}

}  // namespace nsa::device::sm80
