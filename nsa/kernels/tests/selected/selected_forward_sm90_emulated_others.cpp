// What goes before and behind the products of the selected branch's forward pass, compiled as C++
// for the emulator, and stubs of what its test does not ask for.
#include "nsa/kernels/interval/tile_ranges.h"
#include "nsa/kernels/selected/rows/row_attention_launch.h"
#include "nsa/kernels/selected/selected_join.cu"
#include "nsa/kernels/selected/sm90/selected_dense_launch.h"
#include "nsa/kernels/selected/sm90/selected_forward_launch.h"
#include "nsa/kernels/selected/tile_index.cu"

namespace nsa::kernels {

cudaError_t tile_attention_forward(const IntervalAttention&, const TileRanges&, cudaStream_t) {
  return cudaErrorNotSupported;
}

namespace portable {
#define NSA_NOT_EMULATED(instance)                                     \
  cudaError_t row_##instance(const RowAttention&, int, cudaStream_t) { \
    return cudaErrorNotSupported;                                      \
  }
NSA_NOT_EMULATED(64_64_bf16)
NSA_NOT_EMULATED(64_64_fp16)
NSA_NOT_EMULATED(128_128_bf16)
NSA_NOT_EMULATED(128_128_fp16)
NSA_NOT_EMULATED(192_128_bf16)
NSA_NOT_EMULATED(192_128_fp16)
NSA_NOT_EMULATED(256_256_bf16)
NSA_NOT_EMULATED(256_256_fp16)
#undef NSA_NOT_EMULATED
}  // namespace portable

namespace sm90 {
#define NSA_NOT_EMULATED(dims)                                                                     \
  cudaError_t selected_forward_##dims##_fp16(const RowAttention&, const SelectedPlan&, void*, int, \
                                             cudaStream_t) {                                       \
    return cudaErrorNotSupported;                                                                  \
  }                                                                                                \
  cudaError_t selected_dense_##dims##_fp16(const RowAttention&, const DenseQueries&,               \
                                           cudaStream_t) {                                         \
    return cudaErrorNotSupported;                                                                  \
  }
NSA_NOT_EMULATED(64_64)
NSA_NOT_EMULATED(192_128)
#ifdef __SANITIZE_ADDRESS__
NSA_NOT_EMULATED(128_128)
#endif
#undef NSA_NOT_EMULATED
}  // namespace sm90

}  // namespace nsa::kernels
