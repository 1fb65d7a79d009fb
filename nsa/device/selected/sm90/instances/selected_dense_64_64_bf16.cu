#include "nsa/device/selected/sm90/selected_dense_wide.cuh"

namespace nsa::device::sm90 {

cudaError_t selected_dense_64_64_bf16(const RowAttention& p, const DenseQueries& queries,
                                      cudaStream_t stream) {
  return launch_selected_dense_wide<64, 64, cutlass::bfloat16_t>(p, queries, stream);
}

}  // namespace nsa::device::sm90
