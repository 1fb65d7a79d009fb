#include "nsa/device/interval/sm90/interval_backward.cuh"

namespace nsa::device::sm90 {

cudaError_t selected_early_128_128_bf16(const SelectedEarly& p, cudaStream_t stream) {
  return interval_backward<128, 128, 4, 128, cutlass::bfloat16_t, true>(p.problem, p.plan, stream,
                                                                        p.words);
}

}  // namespace nsa::device::sm90
