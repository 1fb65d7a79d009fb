#include "nsa/device/selected/sm90/selected_forward.cuh"

namespace nsa::device::sm90 {

cudaError_t selected_forward_128_128_bf16(const RowAttention& p, const SelectedPlan& plan,
                                          void* workspace, int set, cudaStream_t stream) {
  return launch_selected_forward<128, 128, cutlass::bfloat16_t>(p, plan, workspace, set, stream);
}

}  // namespace nsa::device::sm90
