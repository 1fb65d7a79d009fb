#include "nsa/device/interval/sm80/interval_attention.cuh"
#include "nsa/device/interval/sm80/interval_attention_launch.h"

namespace nsa::device::sm80 {

cudaError_t interval_128_128_bf16(const IntervalAttention& p, cudaStream_t stream) {
  return launch_interval_attention<128, 128, __nv_bfloat16>(p, stream);
}

}  // namespace nsa::device::sm80
