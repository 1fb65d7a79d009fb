#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace nsa::kernels::sm90 {

/// The driver's encoder, found at run time so that nothing links libcuda.
inline auto tensor_map_encoder() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* symbol = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol,
                                                                12000, cudaEnableDefault, &found);
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<Encode>(symbol)
               : nullptr;
  }();
  return encode;
}

/// Tensor map over a [B, N, H, D] tensor of 2-byte elements that copies boxes of `tokens` x `heads`
/// x 64 columns into rows of 128 bytes, swizzled by 128 bytes; places outside read as 0.
/// Coordinates of a copy: (column, head, token, batch).
inline cudaError_t make_tensor_map(CUtensorMap& map, const void* data, bool half, uint64_t head_dim,
                                   uint64_t heads, uint64_t tokens, uint64_t batch,
                                   uint64_t head_stride, uint64_t token_stride,
                                   uint64_t batch_stride, uint32_t box_heads, uint32_t box_tokens) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[4] = {head_dim, heads, tokens, batch};
  const cuuint64_t strides[3] = {head_stride * 2, token_stride * 2, batch_stride * 2};
  const cuuint32_t box[4] = {64, box_heads, box_tokens, 1}, steps[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(&map, half ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4,
             const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace nsa::kernels::sm90
