#include "nsa/device/rows/row_attention.cuh"
#include "nsa/device/rows/row_attention_launch.h"

namespace nsa::device::sm80 {

cudaError_t row_128_128_bf16(const RowAttention& p, cudaStream_t stream) {
  return launch_row_attention<128, 128, 4, __nv_bfloat16>(p, stream);
}

}  // namespace nsa::device::sm80
