#include "nsa/device/interval/sm90/interval_backward.cuh"

namespace nsa::device::sm90 {

cudaError_t backward_128_128_fp16(const IntervalBackward& p, const BackwardPlan& plan,
                                  cudaStream_t stream) {
  return interval_backward<128, 128, 4, 128, cutlass::half_t>(p, plan, stream);
}

}  // namespace nsa::device::sm90
