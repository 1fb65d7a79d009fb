#include "nsa/device/decode/decode_attention.cuh"

namespace nsa::device::sm80 {

cudaError_t decode_64_64_bf16(const DecodeAttention& p, const DecodePlan& plan,
                              cudaStream_t stream) {
  return launch_decode<64, 64, __nv_bfloat16>(p, plan, stream);
}

}  // namespace nsa::device::sm80
