#include "nsa/device/interval/sm90/interval_backward.cuh"

namespace nsa::device::sm90 {

cudaError_t backward_192_128_fp16(const IntervalBackward& p, const BackwardPlan& plan,
                                  cudaStream_t stream) {
  return interval_backward<192, 128, 3, 96, cutlass::half_t>(p, plan, stream);
}

}  // namespace nsa::device::sm90
