// One warp's block scores for l, d, l' = 32, 16, 64, in registers.
#pragma once
#include "nsa/kernels/interval/block_selector.cuh"

namespace nsa::kernels::sm90 {

/// threadIdx.x, read anew: kept, it and what follows from it take registers of all that lies
/// between.
__device__ __forceinline__ int thread_anew() {
#ifdef __CUDA_ARCH__
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
#else
  return static_cast<int>(threadIdx.x);
#endif
}
__device__ __forceinline__ int lane_anew() { return thread_anew() & 31; }

/// Adds the rows of each token, as RowSums::store does. A lane is left with 16 / kRows chunks of
/// either half: the i-th, of chunk i * kRows + lane / 4 % kRows, in sums[half][2 i, 2 i + 1].
template <int kGroup>
__device__ __forceinline__ void add_rows(RowSums<kGroup>& of) {
  constexpr int kRows = kGroup < 8 ? kGroup : 8;
  const int row = threadIdx.x % 32 / 4;
#pragma unroll
  for (int half = 0; half < RowSums<kGroup>::kHalves; ++half)
  // Each step adds the two halves of the lanes and leaves every lane with half of the chunks.
#pragma unroll
    for (int bit = 1; bit < kRows; bit *= 2) {
      const bool odd = row & bit;
#pragma unroll
      for (int i = 0; i < 16 / bit; ++i) {
        const int even = i / 2 * 4 + i % 2;
        float (&sums)[32] = of.sums[half];
        const float keep = odd ? sums[even + 2] : sums[even],
                    give = odd ? sums[even] : sums[even + 2];
        sums[i] = keep + __shfl_xor_sync(~0u, give, bit * 4);
      }
    }
}

/// Where a warp's lanes stand: lane % 4 is the column pair, lane / 4 the row of the half.
template <int kGroup>
struct BlockLanes {
  static constexpr int kTokens = 16 / kGroup;  // of the warp
  static constexpr int kBlocks = 16 / kGroup;  // of a lane and a step
  static constexpr int kRows = kGroup < 8 ? kGroup : 8;
  static constexpr int kAround = 4 * kRows;           // lanes that share rows of a token
  static constexpr int kShift = kGroup < 16 ? 1 : 0;  // odd lanes have the token of the other half
  static constexpr int kNextBlock = 2 * kRows;        // from a block of a lane to its next one

  int lane = lane_anew();
  bool odd = lane & 1;

  __device__ __forceinline__ int token() const {
    return kGroup == 16 ? 0 : (lane & 1) * (8 / kRows) + lane / kAround;
  }
  /// A lane of a token; with two lists the first one's, the other is two lanes on.
  __device__ __forceinline__ static int lane_of(int token) {
    return kGroup == 16 ? 0 : token % (8 / kRows) * kAround + token / (8 / kRows);
  }
  /// All lanes of this lane's token, and those of them whose blocks come before this lane's.
  __device__ __forceinline__ unsigned of_token() const {
    if (kGroup == 16) return ~0u;
    const unsigned even = kAround == 32 ? 0x55555555u : 0x55555555u & ((1u << kAround % 32) - 1);
    return even << (lane / kAround * kAround + (lane & 1));
  }
  __device__ __forceinline__ unsigned before() const {
    const unsigned below = (1u << lane) - 1;
    if (kGroup < 16) return of_token() & below;
    return odd ? 0x55555555u | (0xaaaaaaaau & below) : 0x55555555u & below;
  }
  __device__ __forceinline__ int first_block() const {
    return lane / 4 % kRows * 2 + lane % 4 / 2 + (kGroup == 16 && odd ? 16 : 0);
  }
};

/// Sums over heads -> scores of the lane's blocks: columns 4 j - 1 to 4 j + 3 with weights 1, 2, 2,
/// 2, 1, in the same order for every block. NaN becomes -1, below every number.
template <int kGroup>
struct BlockScores {
  using Lanes = BlockLanes<kGroup>;
  static constexpr int kAround = Lanes::kAround;
  float last = 0.f;  // column of the lane before, where the next step continues

  /// Even lanes have the first two columns of a block, odd ones the others. A pair of lanes has
  /// two blocks (of both halves' tokens, or of one token): each lane finishes one.
  __device__ __forceinline__ void add(const RowSums<kGroup>& columns,
                                      float (&scores)[Lanes::kBlocks]) {
    const Lanes me;
    const int lane = me.lane;
    const bool odd = me.odd;
    const float weight = odd ? 1.f : 2.f;
    const int before_own = (lane & -kAround) | ((lane - (odd ? 2 : 1)) & (kAround - 1));
#pragma unroll
    for (int i = 0; i < Lanes::kBlocks; ++i) {
      const float (&one)[32] = columns.sums[0];
      const float (&other)[32] = columns.sums[kGroup < 16 ? 1 : 0];
      const int at = kGroup < 16 ? 2 * i : 2;
      const float y0 = one[2 * i + 1], y1 = other[at + 1];
      const float sum0 = fmaf(y0, weight, one[2 * i] + one[2 * i]),
                  sum1 = fmaf(y1, weight, other[at] + other[at]);
      const float given = __shfl_xor_sync(~0u, odd ? sum0 : sum1, 1);
      const float both = (odd ? sum1 : sum0) + given;
      const float from0 = __shfl_sync(~0u, y0, before_own),
                  from1 = __shfl_sync(~0u, y1, before_own);
      float before = odd ? from1 : from0;
      if (kGroup < 16) {
        const float next = before;
        before = lane % kAround < 2 ? last : before;
        last = next;
      } else {
        before = lane == 0 ? last : lane == 1 ? from0 : before;
        last = from1;
      }
      scores[i] = fmaxf(both + before, -1.f);
    }
  }
};

}  // namespace nsa::kernels::sm90
