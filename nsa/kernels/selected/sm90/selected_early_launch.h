#pragma once
#include "nsa/kernels/interval/sm90/interval_backward_launch.h"
#include "nsa/kernels/selected/selected_backward.h"

/// The backward pass of the first queries of the selected branch in whole causal tiles: as that of
/// the interval branches, where a row passes over tiles of 64 keys that its word does not name.
namespace nsa::kernels::sm90 {

/// Bit of a word whose ranges are not made of whole tiles: the row gets a d_q of NaN.
constexpr int kBrokenWord = 63;

/// What stands for the statistics of the plan and for its partial sums, which have the order of the
/// accumulators (selected/selected_sums.cu).
struct TileWords {
  uint64_t* words = nullptr;      // [B, Hkv, first queries] bit j: keys [64 j, 64 j + 64)
  const float2* stats = nullptr;  // [B, S, Hq] lse in base 2, delta
  float2* nothing = nullptr;      // one: infinity, 0
  float* slots = nullptr;         // [chunks, B, Hkv, key_tiles, 64 * (dk + dv)], d_k scaled
  int key_tiles = 0;              // of 64 keys; even
  int tokens_of_batch = 0;        // S
  int window = 0;                 // of the branch that joins, 0: none
  const float *window_lse = nullptr, *window_delta = nullptr;  // [B, Hkv, S, G]
  // Like stats, of the window and of keys that a row attends in both branches.
  float2 *of_window = nullptr, *of_both = nullptr;
};

/// The first queries as a problem of interval attention, with its chunks.
struct SelectedEarly {
  IntervalBackward problem;
  BackwardPlan plan;
  TileWords words;
};

/// Words of the first queries from their ranges [B, S, Hkv, K, 2]; clears the plan's `bad`.
cudaError_t read_tile_words(const SelectedEarly&, const int32_t* ranges, int num_ranges,
                            cudaStream_t);
/// Recomputes d_q and slots that are not finite from attended pairs only; nothing to do when `bad`
/// is 0.
cudaError_t mend_early(const SelectedEarly&, cudaStream_t);

/// d_q and slots; one function per head dims and type, each in its .cu file.
using LaunchEarly = cudaError_t (*)(const SelectedEarly&, cudaStream_t);

#define NSA_DECLARE_EARLY(dims)                                                 \
  cudaError_t selected_early_##dims##_bf16(const SelectedEarly&, cudaStream_t); \
  cudaError_t selected_early_##dims##_fp16(const SelectedEarly&, cudaStream_t)
NSA_DECLARE_EARLY(64_64);
NSA_DECLARE_EARLY(128_128);
NSA_DECLARE_EARLY(192_128);
#undef NSA_DECLARE_EARLY

}  // namespace nsa::kernels::sm90
