// What the two kernels of the backward pass of interval attention share.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/numeric_types.h>
#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "nsa/kernels/common/divisor.h"
#include "nsa/kernels/common/sm90/instructions.cuh"
#include "nsa/kernels/common/sm90/launch.cuh"
#include "nsa/kernels/common/sm90/tensor_map.h"
#include "nsa/kernels/interval/interval_bounds.h"
#include "nsa/kernels/interval/sm90/interval_backward_launch.h"
#include "nsa/kernels/selected/sm90/selected_early_launch.h"

namespace nsa::kernels::sm90 {

using namespace cute;

constexpr float kLog2OfE = 1.4426950408889634f;

/// What a launch passes by value. Maps: of a tile of rows and of a tile of keys.
struct BackwardArguments {
  CUtensorMap q_map, d_out_map, k_map, v_map;
  BackwardPlan plan;
  TileWords words;  // of the selected branch
  IntervalAttention forward;
  void *d_q, *d_k, *d_v;
  bool adds;  // to what d_q holds
  RowTiling tiling;
  Divisor by_heads, by_parts, by_stride;  // of the tiling, of the rule
  int units;                              // CTAs
  int tiles_of_unit;                      // d_q: tiles of rows a CTA computes
  float scale_log2;
};

CUTE_DEVICE void wait(uint64_t& barrier, uint32_t phase) {
  cutlass::arch::ClusterTransactionBarrier::wait(&barrier, phase);
}
CUTE_DEVICE void arrive(uint64_t& barrier) { cutlass::arch::ClusterBarrier::arrive(&barrier); }

/// 2^x; results below the least normal number are 0.
CUTE_DEVICE float power_of_two(float x) { return portable::fast_exp2(x); }

/// Two values as the register of an A operand, the first one in the low half; and back.
template <typename T>
CUTE_DEVICE uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, cutlass::half_t>) return pack_halves(low, high);
  return pack_bfloats(low, high);
}
template <typename T>
CUTE_DEVICE float2 unpack(uint32_t x) {
  if constexpr (std::is_same_v<T, cutlass::half_t>)
    return __half22float2(*reinterpret_cast<const __half2*>(&x));
  return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u));
}

/// An accumulator of kColumns columns as A operand of the next product: the same registers, packed
/// in pairs.
template <int kColumns>
CUTE_DEVICE auto packed_accumulator() {
  return make_tensor<uint32_t>(Layout<Shape<Shape<_1, _2, _2>, _1, Int<kColumns / 16>>>{});
}

/// A bit for each column of an accumulator that a thread has before `column`: two of every eight,
/// up to 128.
CUTE_DEVICE uint32_t columns_before(int column) {
  const int own = max(column - int(threadIdx.x % 4) * 2, 0), count = own / 8 * 2 + min(own % 8, 2);
  return count < 32 ? (1u << count) - 1 : ~0u;
}

/// c (+)= a b, enqueued.
template <bool kClear, class Mma, class A, class B, class C>
CUTE_DEVICE void multiply(Mma& mma, const A& a, const B& b, C& c) {
  warpgroup_fence_operand(c);
  warpgroup_arrive();
  mma.accumulate_ = kClear ? GMMA::ScaleOut::Zero : GMMA::ScaleOut::One;
  CUTE_UNROLL
  for (int i = 0; i < decltype(size<2>(b))::value; ++i) {
    gemm(mma, a(_, _, i), b(_, _, i), c);
    mma.accumulate_ = GMMA::ScaleOut::One;
  }
  warpgroup_commit_batch();
}

/// A warp's 16 rows of an accumulator, times `factor`, by 64 columns through shared memory of its
/// own, so that whole sectors are written. `target(row)` is where a row goes, or null; with `adds`
/// it is added to what lies there. Returns whether all values of rows with a place are finite.
template <int kColumns, bool kMayAdd = false, typename T, class Acc, class Target>
CUTE_DEVICE bool store_rows(T* staging, float factor, const Acc& acc, const Target& target,
                            bool adds = false) {
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));  // addresses are not computed ahead, where registers are scarce
  const auto piece = [&](int row, int column) -> T* {  // of 16 bytes, swizzled by row
    return staging + row * 64 + ((column / 8) ^ (row % 8)) * 8 + column % 8;
  };
  float probe[2] = {};  // what is not finite stays so in a sum
  CUTE_UNROLL
  for (int first = 0; first < kColumns; first += 64) {
    if (kMayAdd && adds) {
      uint4 earlier[4];
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const T* const from = target(i * 4 + lane / 8);
        earlier[i] = from == nullptr ? uint4{}
                                     : *reinterpret_cast<const uint4*>(from + first + lane % 8 * 8);
      }
      CUTE_UNROLL
      for (int i = 0; i < 4; ++i)
        *reinterpret_cast<uint4*>(piece(i * 4 + lane / 8, lane % 8 * 8)) = earlier[i];
      __syncwarp();
    }
    CUTE_UNROLL
    for (int i = first / 2; i < first / 2 + 32; i += 2) {
      const int r = (i / 2) % 2, column = (i / 4) * 8 + (lane % 4) * 2 - first;
      probe[r] += acc(i) + acc(i + 1);
      uint32_t& word = *reinterpret_cast<uint32_t*>(piece(lane / 4 + 8 * r, column));
      if (kMayAdd && adds) {
        const float2 before = unpack<T>(word);
        word = pack<T>(fmaf(acc(i), factor, before.x), fmaf(acc(i + 1), factor, before.y));
      } else {
        word = pack<T>(acc(i) * factor, acc(i + 1) * factor);
      }
    }
    __syncwarp();
    CUTE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + lane / 8, column = lane % 8 * 8;
      T* const to = target(row);
      if (to != nullptr)
        *reinterpret_cast<uint4*>(to + first + column) =
            *reinterpret_cast<const uint4*>(piece(row, column));
    }
    __syncwarp();
  }
  bool good = true;
  CUTE_UNROLL
  for (int r = 0; r < 2; ++r) good &= isfinite(probe[r]) || target(lane / 4 + 8 * r) == nullptr;
  return good;
}

}  // namespace nsa::kernels::sm90
