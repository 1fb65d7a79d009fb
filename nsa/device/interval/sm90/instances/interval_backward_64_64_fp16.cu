#include "nsa/device/interval/sm90/interval_backward.cuh"

namespace nsa::device::sm90 {

cudaError_t backward_64_64_fp16(const IntervalBackward& p, const BackwardPlan& plan,
                                cudaStream_t stream) {
  return interval_backward<64, 64, 4, 128, cutlass::half_t>(p, plan, stream);
}

}  // namespace nsa::device::sm90
