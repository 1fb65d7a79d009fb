#include "nsa/device/selected/sm90/selected_backward.cuh"

namespace nsa::device::sm90 {

cudaError_t selected_backward_192_128_fp16(const SelectedBackward& p, int tokens,
                                           const SelectedPlan& plan, void* workspace, int set,
                                           cudaStream_t stream) {
  return launch_selected_backward<192, 128, cutlass::half_t>(p, tokens, plan, workspace, set,
                                                             stream);
}

}  // namespace nsa::device::sm90
