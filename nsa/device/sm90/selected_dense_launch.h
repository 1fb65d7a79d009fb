#pragma once
#include "nsa/device/row_attention.h"

/// One function per instantiation of the selected branch in whole tiles under masks:
/// selected_dense_DK_DV_(type). Only the first `queries` of every sequence are computed.
namespace nsa::device::sm90 {

using SelectedDenseLaunch = cudaError_t (*)(const RowAttention&, int queries, cudaStream_t);

#define NSA_DECLARE_DENSE(dims)                                                     \
  cudaError_t selected_dense_##dims##_bf16(const RowAttention&, int, cudaStream_t); \
  cudaError_t selected_dense_##dims##_fp16(const RowAttention&, int, cudaStream_t)
NSA_DECLARE_DENSE(64_64);
NSA_DECLARE_DENSE(128_128);
NSA_DECLARE_DENSE(192_128);
#undef NSA_DECLARE_DENSE

}  // namespace nsa::device::sm90
