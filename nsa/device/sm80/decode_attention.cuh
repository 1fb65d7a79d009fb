// One decode step of one (sequence, KV head) by a cluster of blocks of threads ("ranks").
//
// First every rank attends its share of the compressed blocks and of the window, some warps the
// one, some the other, and keeps what scores need in shared memory. The ranks exchange maxima and
// sums, make block scores, exchange their best blocks, and all of them pick the same ones. Then
// each attends its share of the selected tokens. Every rank sums some columns of the outputs over
// the parts that all ranks send it. Shares depend on sizes only, so a step gives the same bits
// every time.
//
// With few sequences a step is a chain of latencies, and with one warp a scheduler each instruction
// counts: what does not wait for the chain runs where the chain waits for memory.
#pragma once
#include "nsa/device/sm80/decode_exchange.cuh"
#include "nsa/device/sm80/decode_launch.h"
#include "nsa/device/sm80/decode_selection.cuh"
#include "nsa/device/sm80/decode_token.cuh"
#include "nsa/device/sm80/launch.cuh"

namespace nsa::device::sm80 {

/// What a warp attends in one round: tiles first, first + step, ... of the keys of a branch.
struct DecodeShare {
  int branch, first, step, num_keys;
  __device__ __forceinline__ int tiles() const {
    return (num_keys + kDecodeTile - 1) / kDecodeTile;
  }
};

template <int DK, int DV, typename T>
struct DecodeKernel {
  using Block = DecodeBlock<DK, DV, T>;
  using Tiles = typename Block::Tiles;
  using Token = TokenStage<DK, DV, T>;
  static constexpr int kStages = Block::kStages;

  const Block& b;
  const DecodeRow& row;
  const DecodeArguments& a;
  const DecodeAttention& p;

  __device__ explicit DecodeKernel(const Block& block)
      : b(block), row(block.row), a(block.a), p(block.p) {}

  /// Where key lane % 16 of a tile is. The window counts keys from the newest on. The page comes
  /// from memory: use it late.
  __device__ __forceinline__ DecodeRow::Place find(const DecodeShare& share, int tile) const {
    const int key = tile * kDecodeTile + b.lane % kDecodeTile;
    if (key >= share.num_keys) return {-1, 1, 0};
    if (share.branch == kWin)
      return {row.sequence * p.window.num_slots + a.slots.remainder(row.t - key), 1, 0};
    if (share.branch == kCmp) return row.find(p.compressed, a.compressed_page, row.block0 + key);
    const int unit = a.unit.quotient(key);
    return row.find(p.selected, a.selected_page,
                    (b.shared.ids[unit] - unit) * p.sel_block_size + key);
  }

  /// Where a tile's scores are kept.
  __device__ __forceinline__ ScoreColumns columns(const DecodeShare& share, int tile) const {
    ScoreColumns kept;
    if (share.branch != kCmp) return kept;
    kept.heads = b.group, kept.stride = a.plan.score_stride;
    if (!a.plan.unit_sums) {
      kept.first = b.scores() + a.halo + tile * kDecodeTile;
      return kept;
    }
    kept.first = b.scores() + 4 * tile;
    kept.carry = b.carries() + tile + 1, kept.reference = b.references() + tile + 1;
    kept.tile_stride = a.plan.tile_stride;
    const int last = row.unit1(a) - row.unit0(a) - 1;
    if (tile == last / 4) kept.carrying = last % 4;
    return kept;
  }

  /// Whether a warp of the first round attends a row that this launch writes.
  __device__ __forceinline__ bool attends_new_rows(const DecodeShare& share) const {
    const Token token(b);
    if (!p.appends) return false;
    if (share.branch == kWin) return token.owns_tokens() && share.first == 0;
    return token.owns_source() && row.emits(a) &&
           ((row.num_blocks - 1 - row.block0) / kDecodeTile - share.first) % share.step == 0;
  }

  /// While the first copies are on their way, the new token is prepared (first round) or the parts
  /// of the first round go to their ranks. Warps that attend a row which is written then copy
  /// later.
  __device__ __forceinline__ void attend(const DecodeShare& share, int round, int cmp_warps,
                                         const NewToken<DK, DV, T>& token,
                                         uint32_t (&q)[DK / 16][4], DecodeSums<DV>& sums) const {
    const T* k = static_cast<const T*>(share.branch == kCmp   ? p.compressed.k
                                       : share.branch == kSel ? p.selected.k
                                                              : p.window.k) +
                 row.kv_head * DK;
    const T* v = static_cast<const T*>(share.branch == kCmp   ? p.compressed.v
                                       : share.branch == kSel ? p.selected.v
                                                              : p.window.v) +
                 row.kv_head * DV;
    const uint32_t ring = b.ring();
    const int tiles = share.tiles();
    // From the second stage on: the first has parts of the first round until they are sent.
    const bool late = round == 0 && attends_new_rows(share);
    int loaded = 0, to = 1, from = 1, next = share.first;
    DecodeRow::Place place = find(share, next);
    const auto fetch = [&] {
      const int cache_row =
          place.page < 0 ? -1 : static_cast<int>(place.page) * place.scale + place.within;
      if (next < tiles) {
        const uint32_t stage = ring + to * Tiles::kStageBytes;
        Tiles::template copy_rows<DK>(stage, k, p.num_kv_heads * DK, cache_row);
        Tiles::template copy_rows<DV>(stage + Tiles::kKeyBytes, v, p.num_kv_heads * DV, cache_row);
        loaded += __popc(__ballot_sync(~0u, cache_row >= 0) & 0xffff);
      }
      commit_copies();  // an empty group keeps the count of groups
      to = to + 1 == kStages ? 0 : to + 1;
      next += share.step;
      place = find(share, next);  // its page is looked up one tile ahead
    };
#pragma unroll 1
    for (int step = 0; step < 2; ++step) {
      if ((step == 0) == late) {
        if (round == 0) {
          Token(b).run(token, q);
        } else {
          finish_first_round(cmp_warps);
        }
        continue;
      }
#pragma unroll 1
      for (int i = 0; i < kStages - 1; ++i) fetch();
    }
    sums.clear();
#pragma unroll 1
    for (int tile = share.first; tile < tiles; tile += share.step) {
      fetch();
      wait_copies<kStages - 1>();
      __syncwarp();
      Tiles::consume(
          ring + from * Tiles::kStageBytes, share.num_keys - tile * kDecodeTile, q, a.scale_log2,
          [&] { return columns(share, tile); }, sums);
      __syncwarp();
      from = from + 1 == kStages ? 0 : from + 1;
    }
    wait_copies<0>();
    __syncwarp();
    if (b.lane == 0 && loaded > 0) atomicAdd(&b.shared.loaded[share.branch], loaded);
  }

  /// What the selected branch does not wait for.
  __device__ __forceinline__ void finish_first_round(int cmp_warps) const {
    weigh_warps(b, 0, cmp_warps);
    __syncthreads();
    send_parts(b, kCmp, cmp_warps);
    if (b.warp == b.warps - 1 && row.rank == 0) write_selection(b);
    __syncthreads();  // the parts' place is the ring's again
  }

  /// From the totals of the first round to the selected blocks.
  __device__ __forceinline__ void select() const {
    if (a.plan.unit_sums) {
      score_sums(b);
    } else {
      sum_heads(b);
    }
    __syncthreads();
    rank_units(b);
    __syncthreads();
    send_candidates(b);
    b.wait_for(&b.shared.candidates_there);  // no rank has scores any more where parts go
    if (b.warp == 0) choose(b);
    if (b.warp == b.warps - 1) activate_gates(b);
    __syncthreads();
  }

  /// The last KV head of a sequence to come here makes it one token longer.
  __device__ __forceinline__ void finish_append() const {
    if (!p.appends || row.rank != 0 || threadIdx.x != 0) return;
    if (atomicAdd(&p.append.arrivals[row.sequence], 1) != p.num_kv_heads - 1) return;
    p.append.arrivals[row.sequence] = 0;
    p.num_tokens[row.sequence] = row.t + 1;
    p.append.num_blocks[row.sequence] = row.num_blocks;
  }

  /// Of all warps those that attend compressed blocks, by their part of the tiles.
  __device__ __forceinline__ int compressed_warps() const {
    const int from_end = b.ranks - 1 - row.rank;
    const int window_tiles = (row.num_window(p) + kDecodeTile - 1) / kDecodeTile;
    const int win_tiles =
        from_end < window_tiles ? ((window_tiles - from_end - 1) >> a.log_ranks()) + 1 : 0;
    const int cmp_tiles = (row.block1 - row.block0 + kDecodeTile - 1) / kDecodeTile;
    if (cmp_tiles == 0) return 0;
    if (win_tiles == 0) return b.warps;
    const int all = cmp_tiles + win_tiles;
    return min(max((2 * b.warps * cmp_tiles + all) / (2 * all), 1), b.warps - 1);
  }

  /// First round: some warps the compressed blocks of this rank, the others its part of the window,
  /// where the newest key is the last rank's. Second round: every warp selected tokens.
  __device__ __forceinline__ DecodeShare share_of_round(int round, int cmp_warps) const {
    const int ranks = b.ranks, warp = b.warp;
    if (round == 1)
      return {kSel, row.rank + ranks * warp, ranks * b.warps,
              (b.shared.num_ids - 1 - row.current) * p.sel_block_size + row.t + 1};
    if (warp < cmp_warps) return {kCmp, warp, cmp_warps, row.block1 - row.block0};
    return {kWin, ranks - 1 - row.rank + ranks * (warp - cmp_warps), ranks * (b.warps - cmp_warps),
            row.num_window(p)};
  }

  /// A row for which nothing fits: NaN, and the sequence stays as it is.
  __device__ __forceinline__ void refuse() const {
    for (int i = threadIdx.x; row.rank == 0 && i < b.group * DV / 2; i += b.threads)
      static_cast<uint32_t*>(p.out)[b.first_head() * (DV / 2) + i] = pack<T>(NAN, NAN);
  }

  __device__ __forceinline__ void count_reads() const {
    if (row.rank != 0 || threadIdx.x >= 3 || p.reads == nullptr) return;
    int64_t reads = 0;
#pragma unroll 1
    for (int r = 0; r < b.ranks; ++r) reads += b.shared.reads[r][threadIdx.x];
    p.reads[b.kv_row() * 3 + threadIdx.x] = reads;
  }

  __device__ __forceinline__ void run(const NewToken<DK, DV, T>& token) const {
    if (row.t < 0 || row.t >= p.max_tokens)
      return refuse();  // all ranks and KV heads of a sequence
    if (threadIdx.x < 3) b.shared.loaded[threadIdx.x] = 0;
    const int cmp_warps = compressed_warps();
    uint32_t q[DK / 16][4] = {};
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
      asm volatile("" : "+r"(round));  // or the compiler makes two copies of everything
      {
        DecodeSums<DV> sums;
        attend(share_of_round(round, cmp_warps), round, cmp_warps, token, q, sums);
        Tiles::leave(sums, b.parts(b.warp), b.warp_stats() + b.warp * kMostHeads);
      }
      __syncthreads();
      if (round == 0) {
        cluster_wait();  // every rank is there, and done with its q
        send_halo(b);
      } else {
        weigh_warps(b, 1, 0);
        __syncthreads();
        send_parts(b, kSel, b.warps);
        if (threadIdx.x < 3)
          b.put(&b.shared.reads[row.rank][threadIdx.x], 0, b.shared.loaded[threadIdx.x],
                &b.shared.outputs_there);
      }
      send_stats(b, round == 0 ? 2 : 1, round == 0 ? cmp_warps : b.warps);
      b.wait_for(round == 0 ? &b.shared.totals_there : &b.shared.outputs_there);
      if (round == 1) break;
      total_up(b);
      __syncthreads();
      select();
    }
    write_outputs(b);
    count_reads();
    finish_append();
  }
};

template <int DK, int DV, typename T>
__global__ void __launch_bounds__(kMostWarps * 32)
    decode_kernel(const __grid_constant__ DecodeArguments a) {
  NSA_DYNAMIC_SHARED(dynamic);
  __shared__ typename DecodeBlock<DK, DV, T>::Shared shared;
  follow_previous_launch();
  const DecodePair pair(a);
  const int64_t sequence = ask_sequence(a.p, pair);  // comes while the token is asked for
  const NewToken<DK, DV, T> token(a, pair);
  const DecodeBlock<DK, DV, T> block(a, DecodeRow(a, pair, sequence), dynamic, shared);
  DecodeKernel<DK, DV, T>(block).run(token);
}

template <int DK, int DV, typename T>
cudaError_t launch_decode(const DecodeAttention& p, const DecodePlan& plan, cudaStream_t stream) {
  const auto kernel = decode_kernel<DK, DV, T>;
  const auto address = reinterpret_cast<const void*>(kernel);
  cudaError_t status =
      cudaFuncSetAttribute(address, cudaFuncAttributeMaxDynamicSharedMemorySize, plan.bytes);
  if (status == cudaSuccess && plan.ranks > 8)
    status = cudaFuncSetAttribute(address, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(p.batch * p.num_kv_heads * plan.ranks);
  config.blockDim = dim3(plan.warps * 32);
  config.dynamicSmemBytes = plan.bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (plan.ranks > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = plan.ranks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  if (plan.overlaps) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  return launch(kernel, config, decode_arguments(p, plan));
}

}  // namespace nsa::device::sm80
