#include "nsa/device/decode/decode_attention.cuh"

namespace nsa::device::sm80 {

cudaError_t decode_128_128_fp16(const DecodeAttention& p, const DecodePlan& plan,
                                cudaStream_t stream) {
  return launch_decode<128, 128, __half>(p, plan, stream);
}

}  // namespace nsa::device::sm80
