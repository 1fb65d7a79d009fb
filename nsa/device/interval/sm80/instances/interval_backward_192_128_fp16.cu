#include "nsa/device/interval/sm80/interval_backward.cuh"

namespace nsa::device::sm80 {

cudaError_t backward_192_128_fp16(const IntervalBackward& p, const sm90::BackwardPlan& plan,
                                  cudaStream_t stream) {
  return interval_backward<192, 128, 32, 2, 2, __half>(p, plan, stream);
}

}  // namespace nsa::device::sm80
