#include "nsa/device/decode/decode_attention.cuh"

namespace nsa::device::sm80 {

cudaError_t decode_128_128_bf16(const DecodeAttention& p, const DecodePlan& plan,
                                cudaStream_t stream) {
  return launch_decode<128, 128, __nv_bfloat16>(p, plan, stream);
}

}  // namespace nsa::device::sm80
