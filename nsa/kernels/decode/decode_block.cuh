// What a block of threads of a decode step knows, and where its shared memory lies.
#pragma once
#include "nsa/kernels/common/quad.cuh"
#include "nsa/kernels/decode/cluster.cuh"
#include "nsa/kernels/decode/decode_row.cuh"
#include "nsa/kernels/decode/decode_tiles.cuh"

namespace nsa::kernels::portable {

constexpr int kMostHeads = 16, kMostWarps = 8, kLeastWarps = 4, kMostChosen = 32, kChunk = 32;

template <int DK, int DV, typename T>
struct DecodeBlock {
  using Element = T;
  static constexpr int kKeyColumns = DK, kValueColumns = DV, kStages = decode_stages(DK);
  using Tiles = DecodeTiles<DK, DV, kStages, T>;
  static constexpr int kRingBytes = kStages * Tiles::kStageBytes;
  static_assert(kRingBytes == decode_ring_bytes(DK, DV));
  static_assert(Tiles::kStageBytes >= kMostHeads * DV * 4, "parts of a warp fit its first stage");
  static constexpr int kQuads = DV / 4, kLogQuads = DV == 64 ? 4 : 5;

  struct Shared {
    float gates[kMostHeads][3];
    float2 totals[2][kMostHeads];  // maximum and 1 / sum over all ranks: cmp, win
    float2 factors[kMostHeads];    // of unit sums: reference, and what is left to multiply with
    int ids[kMostChosen];
    int num_ids;
    Arrivals totals_there, candidates_there, outputs_there;
    int loaded[3], reads[kMostRanks][3];  // of this rank; of all, at rank 0
  };

  const DecodeArguments& a;
  const DecodeAttention& p;
  const DecodeRow row;
  char* const dynamic;
  Shared& shared;
  const int lane, warp, warps, threads, group, ranks;

  __device__ DecodeBlock(const DecodeArguments& arguments, const DecodeRow& its_row, char* memory,
                         Shared& fixed)
      : a(arguments),
        p(arguments.p),
        row(its_row),
        dynamic(memory),
        shared(fixed),
        lane(threadIdx.x % 32),
        warp(threadIdx.x / 32),
        warps(arguments.plan.warps),
        threads(arguments.plan.warps * 32),
        group(arguments.group),
        ranks(arguments.ranks()) {}

  template <typename V>
  __device__ V* at(int offset) const {
    return reinterpret_cast<V*>(dynamic + offset);
  }
  __device__ uint32_t ring() const { return shared_address(dynamic) + warp * kRingBytes; }
  /// Sums of a warp, in the first stage of its ring.
  __device__ float* parts(int of_warp) const { return at<float>(of_warp * kRingBytes); }
  /// Logits or unit sums, [head][column].
  __device__ float* scores() const { return at<float>(a.plan.area); }
  /// Logits from the halo on: it ends where the rank's own begin, at an even column.
  __device__ float* halo() const { return scores() + (a.halo & 1); }
  __device__ float* own_logits() const { return halo() + a.halo; }
  /// [head][tile + 1]: of the rank before, then of each tile.
  __device__ float* carries() const { return at<float>(a.plan.carries); }
  __device__ float* references() const { return at<float>(a.plan.references); }
  /// Parts of this rank's columns: [branch][from rank][quad].
  __device__ float4* inbox() const { return at<float4>(a.plan.area); }
  /// [rank][head] (maximum, sum): 0 compressed, later selected; 1 window.
  __device__ float2* stats(int which) const {
    return at<float2>(a.plan.stats) + which * ranks * kMostHeads;
  }
  __device__ float2* warp_stats() const { return at<float2>(a.plan.warp_stats); }
  __device__ float2* cos_sin() const {
    return at<float2>(a.plan.candidates);
  }  // until there are any
  /// [head][warp]
  __device__ float* weights() const { return at<float>(a.plan.weights); }
  __device__ float* unit_scores() const { return scores(); }  // in place of the first head's sums
  /// Descending lists of the best of each rank, and of this rank's warps; 0 = none.
  __device__ uint64_t* candidates() const { return at<uint64_t>(a.plan.candidates); }
  __device__ uint64_t* keys() const { return at<uint64_t>(a.plan.keys); }
  /// The new key and value of the window, until there are lists.
  __device__ uint4* new_row() const { return at<uint4>(a.plan.keys); }
  __device__ __forceinline__ int64_t first_head() const {
    return int64_t(row.batch) * p.num_heads + row.kv_head * group;
  }
  __device__ __forceinline__ int64_t kv_row() const {
    return int64_t(row.batch) * p.num_kv_heads + row.kv_head;
  }

  /// Puts a value into the same place of a rank's shared memory, where all that comes from ranks
  /// is counted.
  template <typename V>
  __device__ __forceinline__ void put(V* mine, int rank, V value, Arrivals* counter) const {
    if (ranks > 1) {
      portable::put(mine, rank, value, counter);
    } else {
      *mine = value;
    }
  }
  __device__ __forceinline__ void wait_for(Arrivals* counter) const {
    if (ranks > 1) {
      portable::wait_for(counter);
    } else {
      __syncthreads();
    }
  }

  /// (maximum, sum) of head `head` over warps [begin, end).
  __device__ __forceinline__ void warp_parts(float2 (&to)[kMostWarps], int head, int begin,
                                             int end) const {
#pragma unroll
    for (int w = 0; w < kMostWarps; ++w)
      to[w] =
          w >= begin && w < end ? warp_stats()[w * kMostHeads + head] : make_float2(-INFINITY, 0.f);
  }
};

}  // namespace nsa::kernels::portable
