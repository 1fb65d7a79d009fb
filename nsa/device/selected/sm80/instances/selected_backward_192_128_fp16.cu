#include "nsa/device/selected/sm80/selected_backward.cuh"

namespace nsa::device::sm80 {

cudaError_t selected_backward_192_128_fp16(const SelectedBackward& p, int tokens,
                                           const SelectedPlan& plan, void* workspace, int set,
                                           cudaStream_t stream) {
  return launch_selected_backward<192, 128, __half>(p, tokens, plan, workspace, set, stream);
}

}  // namespace nsa::device::sm80
