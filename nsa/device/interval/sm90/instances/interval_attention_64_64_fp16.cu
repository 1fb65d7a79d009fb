#define CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED  // products of 112 columns
#include "nsa/device/interval/sm90/interval_attention.cuh"
#include "nsa/device/interval/sm90/interval_attention_launch.h"

namespace nsa::device::sm90 {

cudaError_t interval_64_64_128_fp16(const IntervalAttention& p, const TileRanges& tiles,
                                    cudaStream_t stream) {
  return launch_interval_attention<64, 64, 128, cutlass::half_t>(p, tiles, stream);
}
cudaError_t interval_64_64_112_fp16(const IntervalAttention& p, cudaStream_t stream) {
  return launch_interval_attention<64, 64, 112, cutlass::half_t>(p, {}, stream);
}

}  // namespace nsa::device::sm90
