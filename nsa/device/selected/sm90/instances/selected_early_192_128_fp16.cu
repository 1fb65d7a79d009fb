#include "nsa/device/interval/sm90/interval_backward.cuh"

namespace nsa::device::sm90 {

cudaError_t selected_early_192_128_fp16(const SelectedEarly& p, cudaStream_t stream) {
  return interval_backward<192, 128, 3, 96, cutlass::half_t, true>(p.problem, p.plan, stream,
                                                                   p.words);
}

}  // namespace nsa::device::sm90
