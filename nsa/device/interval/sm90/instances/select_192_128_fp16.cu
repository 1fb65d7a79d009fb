#include "nsa/device/interval/sm90/interval_attention.cuh"
#include "nsa/device/interval/sm90/interval_attention_launch.h"

namespace nsa::device::sm90 {

cudaError_t select_192_128_fp16(const IntervalAttention& p, cudaStream_t stream) {
  return launch_interval_attention<192, 128, 128, cutlass::half_t, true>(p, {}, stream);
}

}  // namespace nsa::device::sm90
