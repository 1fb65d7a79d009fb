#include "nsa/device/rows/row_attention.cuh"
#include "nsa/device/rows/row_attention_launch.h"

namespace nsa::device::sm80 {

cudaError_t row_192_128_fp16(const RowAttention& p, cudaStream_t stream) {
  return launch_row_attention<192, 128, 3, __half>(p, stream);
}

}  // namespace nsa::device::sm80
