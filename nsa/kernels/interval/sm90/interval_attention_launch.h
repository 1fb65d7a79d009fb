#pragma once
#include "nsa/kernels/interval/tile_ranges.h"

/// One function per instantiation of interval attention, DK_DV_(key tile)_(type), and of the same
/// with block selection, select_DK_DV_(type). Each stands in the .cu file of its head dims and
/// type.
namespace nsa::kernels::sm90 {

constexpr int kMostTilesOfCta = 256;
/// Warpgroups of a CTA that compute 64 rows each, for dk.
constexpr int warpgroups_of(int qk_head_dim) { return qk_head_dim == 64 ? 3 : 2; }
using Launch = cudaError_t (*)(const IntervalAttention&, cudaStream_t);
using LaunchOfTiles = cudaError_t (*)(const IntervalAttention&, const TileRanges&, cudaStream_t);

#define NSA_DECLARE_INTERVAL(dims)                                                    \
  cudaError_t interval_##dims##_128_bf16(const IntervalAttention&, const TileRanges&, \
                                         cudaStream_t);                               \
  cudaError_t interval_##dims##_112_bf16(const IntervalAttention&, cudaStream_t);     \
  cudaError_t interval_##dims##_128_fp16(const IntervalAttention&, const TileRanges&, \
                                         cudaStream_t);                               \
  cudaError_t interval_##dims##_112_fp16(const IntervalAttention&, cudaStream_t);     \
  cudaError_t select_##dims##_bf16(const IntervalAttention&, cudaStream_t);           \
  cudaError_t select_##dims##_fp16(const IntervalAttention&, cudaStream_t)
NSA_DECLARE_INTERVAL(64_64);
NSA_DECLARE_INTERVAL(128_128);
NSA_DECLARE_INTERVAL(192_128);
#undef NSA_DECLARE_INTERVAL

}  // namespace nsa::kernels::sm90
