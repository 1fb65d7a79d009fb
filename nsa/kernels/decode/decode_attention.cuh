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
#include "nsa/kernels/common/launch.cuh"
#include "nsa/kernels/decode/decode_exchange.cuh"
#include "nsa/kernels/decode/decode_launch.h"
#include "nsa/kernels/decode/decode_selection.cuh"
#include "nsa/kernels/decode/decode_token.cuh"

namespace nsa::kernels::portable {

/// What a warp attends in one round: tiles first, first + step, ... of the keys of a branch.
struct DecodeShare {
  int branch, first, step, num_keys;
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

  /// Where key lane % 16 of a tile is, behind the last key that one; a page comes from memory: use
  /// it late. The window counts keys from the newest on; one that this launch writes is not copied.
  struct Place {
    int page = 0, scale = 1, within = 0;
    __device__ int row() const { return page * scale + within; }
  };
  __device__ __forceinline__ Place find(const DecodeShare& share, const int64_t* pages,
                                        int tile) const {
    Place place;
    if (tile * kWarpTile >= share.num_keys) return place;
    const int last = share.num_keys - 1;
    const int key = min(tile * kWarpTile + b.lane % kWarpTile, last);
    if (share.branch == kWin) {
      const int copied = key == 0 && p.appends ? min(1, last) : key;
      place.page =
          static_cast<int>(row.sequence) * p.window.num_slots + remainder(a.slots, row.t - copied);
      return place;
    }
    int position = row.block0 + key;
    if (share.branch == kSel) {
      const int unit = quotient(a.unit, key);
      position = (b.shared.ids[unit] - unit) * p.sel_block_size + key;
    }
    const bool selected = share.branch == kSel;
    const int page = quotient(selected ? a.selected_page : a.compressed_page, position);
    place.page = static_cast<int>(ask(pages + page));
    place.scale = selected ? p.selected.page_size : p.compressed.page_size;
    place.within = position - page * place.scale;
    return place;
  }

  /// Keeps what the scores of compressed blocks need of a tile's logits.
  __device__ __forceinline__ void keep(int tile, const float (&scores)[2][4],
                                       const float (&top)[2]) const {
    if (!a.plan.unit_sums) {
      Tiles::keep_logits(scores, b.own_logits() + tile * kWarpTile, a.plan.score_stride, b.group);
      return;
    }
    const int last = row.unit1(a) - row.unit0(a) - 1;
    const UnitSums kept = {b.scores() + 4 * tile,
                           b.carries() + tile + 1,
                           b.references() + tile + 1,
                           a.plan.score_stride,
                           a.plan.tile_stride,
                           b.group,
                           tile == last / 4 ? last % 4 : 3};
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (8 * r < b.group) Tiles::keep_unit_sums(scores, r, top[r], a.scale_log2, kept);
  }

  /// Whether a warp of the first round begins with the block that this launch makes.
  __device__ __forceinline__ bool begins_with_new_block(const DecodeShare& share) const {
    if (share.branch != kCmp || !p.appends || !row.makes_block(a) || !Token(b).owns_source())
      return false;
    const int tile = (row.num_blocks - 1 - row.block0) / kWarpTile;
    bool begins = false;
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) begins = begins || tile == share.first + i * share.step;
    return begins;
  }

  /// Whether a warp of the first round begins with new tokens before this row's.
  __device__ __forceinline__ bool begins_with_new_tokens(const DecodeShare& share) const {
    return share.branch == kWin && p.appends && row.token > 0 && share.first == 0;
  }

  /// While the first copies are on their way, the new token is prepared (first round) or the
  /// selection is written.
  __device__ __forceinline__ void attend(const DecodeShare& share, int round,
                                         const NewToken<DK, DV, T>& token,
                                         uint32_t (&q)[DK / 16][4], WarpSums<DV>& sums) const {
    const bool cmp = share.branch == kCmp, sel = share.branch == kSel;
    const void* const keys = cmp ? p.compressed.k : sel ? p.selected.k : p.window.k;
    const void* const values = cmp ? p.compressed.v : sel ? p.selected.v : p.window.v;
    const int piece = b.lane % 8 * 16;
    // Kept as they are: what is computed once is not computed for every tile.
    const char* const k = anew(static_cast<const char*>(keys) + row.kv_head * (DK * 2) + piece);
    const char* const v = anew(static_cast<const char*>(values) + row.kv_head * (DV * 2) + piece);
    const int64_t* const pages = anew(row.pages(cmp ? p.compressed : p.selected));
    const int first_row = b.lane / 8;
    const int k_place = anew(Tiles::template offset<DK>(first_row, b.lane % 8));
    const int v_place = anew(Tiles::template offset<DV>(first_row, b.lane % 8));
    const uint32_t ring = anew(b.ring());
    const bool late = round == 0 && (begins_with_new_block(share) || begins_with_new_tokens(share));
    int tiles = 0, to = 0, from = 0, next = share.first;
    Place place = find(share, pages, next);
    const auto fetch = [&] {
      if (next * kWarpTile < share.num_keys) {
        const uint32_t stage = ring + to * Tiles::kStageBytes;
        int rows[4];
#pragma unroll
        for (int pass = 0; pass < 4; ++pass)
          rows[pass] = __shfl_sync(~0u, place.row(), pass * 4 + first_row);
        Tiles::template copy_rows<DK>(stage, k_place, k, a.key_bytes, rows);
        Tiles::template copy_rows<DV>(stage + Tiles::kKeyBytes, v_place, v, a.value_bytes, rows);
      }
      commit_copies();  // an empty group keeps the count of groups
      to = to + 1 == kStages ? 0 : to + 1;
      next += share.step;
      place = find(share, pages, next);  // its page is looked up one tile ahead
    };
#pragma unroll 1
    for (int step = 0; step < 2; ++step) {
      if ((step == 0) == late) {
        if (round == 0) {
          Token(b).run(token, q);
        } else if (b.warp == b.warps - 1 && row.rank == 0) {
          write_selection(b);
        }
        continue;
      }
#pragma unroll 1
      for (int i = 0; i < kStages - 1; ++i) fetch();
    }
    sums.clear();
    int first_key = share.first * kWarpTile;
#pragma unroll 1
    for (; first_key < share.num_keys; first_key += share.step * kWarpTile) {
      fetch();
      wait_copies<kStages - 1>();
      __syncwarp();
      if (first_key == 0 && share.branch == kWin && p.appends) {
        const int rows = share.num_keys == 1 ? kWarpTile : 1;  // all, where all are that key
#pragma unroll 1
        for (int i = 0; i < rows; ++i)
          Tiles::put_row(ring + from * Tiles::kStageBytes, i, b.new_row());
        __syncwarp();
      }
      const uint32_t stage = ring + from * Tiles::kStageBytes;
      Tiles::consume(
          stage, stage + Tiles::kKeyBytes, share.num_keys - first_key, q, a.scale_log2,
          [&](const float (&scores)[2][4], const float (&top)[2]) {
            if (cmp) keep(first_key / kWarpTile, scores, top);
          },
          sums);
      __syncwarp();
      from = from + 1 == kStages ? 0 : from + 1;
      ++tiles;
    }
    wait_copies<0>();
    __syncwarp();
    // The last tile of all may be a part of one.
    const int behind = max(first_key - share.step * kWarpTile + kWarpTile - share.num_keys, 0);
    if (b.lane == 0 && tiles > 0)
      atomicAdd(&b.shared.loaded[share.branch], tiles * kWarpTile - behind);
  }

  /// From the totals of the first round to the selected blocks. While one warp chooses them, the
  /// others send the parts of the first round.
  __device__ __forceinline__ void select(int cmp_warps) const {
    if (a.plan.unit_sums) {
      score_sums(b);
    } else {
      sum_heads(b);
    }
    weigh_warps(b, 0, cmp_warps);
    __syncthreads();
    rank_units(b);
    __syncthreads();
    send_candidates(b);
    b.wait_for(&b.shared.candidates_there);   // no rank has scores any more where parts go
    const int senders = b.ranks > 1 ? 1 : 0;  // from this warp on: of one rank the choice is short
    if (b.warp == 0) choose(b);
    if (b.warp >= senders) send_parts(b, kCmp, senders, cmp_warps, b.warps);
    __syncthreads();
  }

  /// Signals to the other rows of the sequence that this one has read its length.
  __device__ __forceinline__ int arrive() const {
    if (!p.appends || row.rank != 0 || threadIdx.x != 0) return -1;
    return atomicAdd(&p.append.arrivals[row.sequence], 1);
  }
  /// The last row of a sequence to come makes it as many tokens longer.
  __device__ __forceinline__ void finish_append(int arrived) const {
    if (arrived != p.tokens * p.num_kv_heads - 1) return;
    p.append.arrivals[row.sequence] = 0;
    const int last = row.last_new(p);
    p.num_tokens[row.sequence] = last + 1;
    p.append.num_blocks[row.sequence] = DecodeRow::blocks_of(a, last);
  }

  /// Of all warps those that attend compressed blocks, by their part of the tiles.
  __device__ __forceinline__ int compressed_warps() const {
    const int from_end = b.ranks - 1 - row.rank;
    const int window_tiles = (row.num_window(p) + kWarpTile - 1) / kWarpTile;
    const int win_tiles =
        from_end < window_tiles ? ((window_tiles - from_end - 1) >> a.log_ranks()) + 1 : 0;
    const int cmp_tiles = (row.block1 - row.block0 + kWarpTile - 1) / kWarpTile;
    if (cmp_tiles == 0) return 0;
    if (win_tiles == 0) return b.warps;
    const float part = __fdividef(static_cast<float>(cmp_tiles), cmp_tiles + win_tiles);
    return min(max(static_cast<int>(part * b.warps + .5f), 1), b.warps - 1);
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

  /// Warps that have a tile in the second round.
  __device__ __forceinline__ int selecting_warps() const {
    const DecodeShare first = share_of_round(1, 0);
    const int behind = (first.num_keys + kWarpTile - 1) / kWarpTile - row.rank;
    return min(max((behind + b.ranks - 1) >> a.log_ranks(), 1), b.warps);
  }

  /// A row for which nothing fits: NaN, and the sequence stays as it is.
  __device__ __forceinline__ void refuse() const {
    for (int i = threadIdx.x; row.rank == 0 && i < b.group * DV / 2; i += b.threads)
      static_cast<uint32_t*>(p.out)[b.first_head() * (DV / 2) + i] = pack<T>(NAN, NAN);
  }

  /// By the last warp: the first ones write outputs.
  __device__ __forceinline__ void count_reads() const {
    if (row.rank != 0 || b.warp != b.warps - 1 || b.lane >= 3 || p.reads == nullptr) return;
    int reads = 0;
#pragma unroll 4
    for (int r = 0; r < b.ranks; ++r) reads += b.shared.reads[r][b.lane];
    p.reads[b.kv_row() * 3 + b.lane] = reads;
  }

  __device__ __forceinline__ void run(NewToken<DK, DV, T>& token) const {
    if (row.first_new() < 0 || row.last_new(p) >= p.max_tokens)
      return refuse();  // all rows of a sequence
    if (threadIdx.x < 3) b.shared.loaded[threadIdx.x] = 0;
    const int cmp_warps = compressed_warps();
    uint32_t q[DK / 16][4];
    int arrived = -1, active = b.warps;
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
      asm volatile("" : "+r"(round));  // or the compiler makes two copies of everything
      {
        WarpSums<DV> sums;
        const DecodeShare share = share_of_round(round, cmp_warps);
        attend(share, round, token, q, sums);
        Tiles::leave(sums, b.parts(b.warp), b.warp_stats() + b.warp * kMostHeads);
      }
      __syncthreads();
      if (round == 0) {
        cluster_wait();  // every rank is there, and done with its q
        arrived = arrive();
        send_halo(b);
      } else {
        weigh_warps(b, 1, 0);
        __syncthreads();
        send_parts(b, kSel, 0, b.warps, active);
        if (threadIdx.x < 3)
          b.put(&b.shared.reads[row.rank][threadIdx.x], 0, b.shared.loaded[threadIdx.x],
                &b.shared.outputs_there);
      }
      send_stats(b, round == 0 ? 2 : 1, round == 0 ? cmp_warps : b.warps);
      if (round == 0 && b.warp == b.warps - 1) activate_gates(b);
      b.wait_for(round == 0 ? &b.shared.totals_there : &b.shared.outputs_there);
      if (round == 1) break;
      total_up(b);
      __syncthreads();
      select(cmp_warps);
      active = selecting_warps();
      token.forget();
    }
    count_reads();
    write_outputs(b);
    finish_append(arrived);
  }
};

/// Loads all arguments into the SM's constant caches, where they would else come one line after the
/// other. Returns their sum, which has no meaning.
__device__ __forceinline__ int ask_arguments(const DecodeArguments& a) {
  constexpr int kLine = 64;
  int sum = 0;
#pragma unroll
  for (size_t i = 0; i < sizeof(a); i += kLine) sum += reinterpret_cast<const char*>(&a)[i];
  return sum;
}

template <int DK, int DV, typename T>
__global__ void __launch_bounds__(kMostWarps * 32)
    decode_kernel(const __grid_constant__ DecodeArguments a) {
  NSA_DYNAMIC_SHARED(char, dynamic);
  __shared__ typename DecodeBlock<DK, DV, T>::Shared shared;
  begin_next_launch();
  const DecodePair pair(a);
  const typename NewToken<DK, DV, T>::Sources sources(a, pair);
  const int64_t* const place =
      anew(a.p.sequences == nullptr ? nullptr : a.p.sequences + pair.entry);
#if !NSA_CODE_OF_SM80
  if (threadIdx.x == 0) shared.num_ids = ask_arguments(a);
#endif
  end_previous_launch();
  const int64_t sequence =
      place == nullptr ? pair.entry : ask(place);  // comes while the token does
  NewToken<DK, DV, T> token(sources);
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
  config.gridDim = dim3(p.batch * p.tokens * p.num_kv_heads * plan.ranks);
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

}  // namespace nsa::kernels::portable
