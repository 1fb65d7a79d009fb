#include "nsa/device/selected/sm90/selected_dense.cuh"

namespace nsa::device::sm90 {

cudaError_t selected_dense_128_128_bf16(const RowAttention& p, const DenseQueries& queries,
                                        cudaStream_t stream) {
  return launch_selected_dense<128, 128, cutlass::bfloat16_t>(p, queries, stream);
}

}  // namespace nsa::device::sm90
