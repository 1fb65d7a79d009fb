#include "nsa/device/decode/decode_attention.cuh"

namespace nsa::device::sm80 {

cudaError_t decode_192_128_fp16(const DecodeAttention& p, const DecodePlan& plan,
                                cudaStream_t stream) {
  return launch_decode<192, 128, __half>(p, plan, stream);
}

}  // namespace nsa::device::sm80
