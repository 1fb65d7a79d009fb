// Data that the ranks of a decode step exchange: maxima and sums, the scores at their borders, and
// parts of the outputs, which each rank adds up for some columns.
#pragma once
#include "nsa/kernels/decode/decode_block.cuh"

namespace nsa::kernels::portable {

/// Keys a list of candidates has: at least as many as places to choose for.
template <typename Block>
__device__ __forceinline__ int list_width(const Block& b) {
  return b.p.top_n <= 16 ? 16 : 32;
}

/// This rank's maxima and sums to all ranks: of one branch, or of two whose warps part at `middle`.
template <typename Block>
__device__ __forceinline__ void send_stats(const Block& b, int branches, int middle) {
  const int which = b.lane / kMostHeads, head = b.lane % kMostHeads;
  if (which >= branches) return;
  float2 parts[kMostWarps];
  b.warp_parts(parts, head, which == 0 ? 0 : middle, which == 0 ? middle : b.warps);
  const float2 all = joined(parts, b.a.scale_log2);
#pragma unroll 1
  for (int to = b.warp; to < b.ranks; to += b.warps)
    b.put(b.stats(which) + b.row.rank * kMostHeads + head, to, all,
          branches == 2 ? &b.shared.totals_there : &b.shared.outputs_there);
}

/// What the rank of the next unit needs of this one's last blocks: logits, or carry and reference.
template <typename Block>
__device__ __forceinline__ void send_halo(const Block& b) {
  const int next = b.row.unit1(b.a), units = next - b.row.unit0(b.a);
  if (units == 0 || next > b.row.current) return;
  const int to = b.row.next_owner(b.a);
  if (b.a.plan.unit_sums) {
    const int head = threadIdx.x, stride = b.a.plan.tile_stride, from = (units + 3) / 4;
    if (head >= b.group) return;
    Arrivals* const there = &b.shared.totals_there;
    b.put(b.carries() + head * stride, to, b.carries()[head * stride + from], there);
    b.put(b.references() + head * stride, to, b.references()[head * stride + from], there);
    return;
  }
  const int end = next * b.a.blocks_of_unit, stride = b.a.plan.score_stride;
#pragma unroll 1
  for (int i = threadIdx.x; i < b.a.halo * kMostHeads; i += b.threads) {
    const int head = i % kMostHeads, column = i / kMostHeads, block = end - b.a.halo + column;
    if (block < b.row.num_blocks && head < b.group)
      b.put(b.halo() + head * stride + column, to,
            b.halo()[head * stride + block - b.row.block0 + b.a.halo], &b.shared.totals_there);
  }
}

/// Opens the counters of what comes from all ranks. One thread.
template <typename Block>
__device__ __forceinline__ void open_inboxes(const Block& b) {
  const DecodeRow& row = b.row;
  const int unit0 = row.unit0(b.a), ranks = b.ranks;
  if (ranks == 1) return;
  const int stats = ranks * kMostHeads * static_cast<int>(sizeof(float2));
  int halo = 0;  // values of a head
  if (unit0 > 0 && row.unit1(b.a) > unit0)
    halo = b.a.plan.unit_sums
               ? 2
               : min(max(row.num_blocks - unit0 * b.a.blocks_of_unit + b.a.halo, 0), b.a.halo);
  open_arrivals(&b.shared.totals_there, 2 * stats + halo * b.group * 4);
  open_arrivals(&b.shared.candidates_there, ranks * list_width(b) * 8);
  const int parts = 3 * b.group * Block::kQuads * static_cast<int>(sizeof(float4));
  open_arrivals(&b.shared.outputs_there, parts + stats + (row.rank == 0 ? ranks * 12 : 0));
  arrivals_are_open();
}

__device__ __forceinline__ float lse_of(float2 all, float scale_log2) {
  const float base = all.x == -INFINITY ? 0.f : all.x;
  return all.y == 0.f ? -INFINITY : (base * scale_log2 + log2f(all.y)) * .693147181f;
}

/// Totals over all ranks, of the compressed branch by the first warp and of the window by the next.
template <typename Block>
__device__ __forceinline__ void total_up(const Block& b) {
  const int which = b.warp, head = b.lane % kMostHeads, first = b.lane / kMostHeads * 8;
  if (which > 1) return;
  const float scale = b.a.scale_log2;
  float2 parts[8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    parts[i] = first + i < b.ranks ? b.stats(which)[(first + i) * kMostHeads + head]
                                   : make_float2(-INFINITY, 0.f);
  const float2 half = joined(parts, scale);
  const float2 halves[2] = {
      make_float2(__shfl_sync(~0u, half.x, head), __shfl_sync(~0u, half.y, head)),
      make_float2(__shfl_sync(~0u, half.x, head + 16), __shfl_sync(~0u, half.y, head + 16))};
  const float2 all = joined(halves, scale);
  if (b.lane >= kMostHeads) return;
  const float inverse = all.y == 0.f ? 0.f : __frcp_rn(all.y);
  b.shared.totals[which][head] = make_float2(all.x, inverse);
  if (which == 0) {
    const float peak = all.x == -INFINITY ? 0.f : all.x * scale, reference = rintf(peak);
    b.shared.factors[head] =
        make_float2(reference, fast_exp2(reference - peak) * inverse * 0x1p-60f);
    static_assert(kUnitBias == 60, "taken back here");
  }
  float* lse = b.p.lse[which == 0 ? kCmp : kWin];
  if (b.row.rank == 0 && head < b.group && lse != nullptr)
    lse[b.first_head() + head] = lse_of(all, scale);
}

/// What the parts of each warp count for: below the totals of the first round, whose branches part
/// at `middle`, or (second round) below the maximum of this block of threads.
template <typename Block>
__device__ __forceinline__ void weigh_warps(const Block& b, int round, int middle) {
  const int head = threadIdx.x % kMostHeads, warp = threadIdx.x / kMostHeads;
  if (warp >= b.warps) return;
  float2 total = make_float2(-INFINITY, 1.f);
  if (round == 0) {
    total = b.shared.totals[warp < middle ? 0 : 1][head];
  } else {
    float2 stats[kMostWarps];
    b.warp_parts(stats, head, 0, b.warps);
#pragma unroll
    for (int w = 0; w < kMostWarps; ++w) total.x = fmaxf(total.x, stats[w].x);
  }
  b.weights()[head * kMostWarps + warp] =
      share_of(b.warp_stats()[threadIdx.x].x, total.x, b.a.scale_log2) * total.y;
}

/// The parts of the first `count` warps together, each column to the rank that sums it: of warps
/// below `middle` as those of `branch`, of the others, if any, as the window's. By warps `senders`
/// and on.
template <typename Block>
__device__ __forceinline__ void send_parts(const Block& b, int branch, int senders, int middle,
                                           int count) {
  constexpr int kQuads = Block::kQuads;
  const int log_each = Block::kLogQuads - b.a.log_ranks();
#pragma unroll 1
  for (int i = threadIdx.x - senders * 32; i < b.group * kQuads; i += b.threads - senders * 32) {
    const int head = i / kQuads, quad = i % kQuads;
    const float4* const shares = reinterpret_cast<const float4*>(b.weights() + head * kMostWarps);
    const float4 low = shares[0], high = shares[1];
    const float weights[kMostWarps] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const float* const first = b.parts(0) + Block::Tiles::place(head, quad);
    float4 parts[kMostWarps], sums[2] = {};
#pragma unroll
    for (int w = 0; w < kMostWarps; ++w)
      if (w < count)
        parts[w] = *reinterpret_cast<const float4*>(first + w * (Block::kRingBytes / 4));
#pragma unroll
    for (int w = 0; w < kMostWarps; ++w) {
      if (w >= count) continue;
      const auto add = [&](float4& sum) {
        sum.x += weights[w] * parts[w].x, sum.y += weights[w] * parts[w].y;
        sum.z += weights[w] * parts[w].z, sum.w += weights[w] * parts[w].w;
      };
      if (w < middle) {
        add(sums[0]);
      } else {
        add(sums[1]);
      }
    }
    const int column = (head << log_each) + (quad & ((1 << log_each) - 1));
    const int each = b.group << log_each, ranks = b.ranks, to = quad >> log_each;
    float4* const inbox = b.inbox() + b.row.rank * each + column;
    b.put(inbox + branch * ranks * each, to, sums[0], &b.shared.outputs_there);
    if (branch != kSel) b.put(inbox + kWin * ranks * each, to, sums[1], &b.shared.outputs_there);
  }
}

__device__ __forceinline__ void add_over(float4& x, int lanes) {
  x.x += __shfl_xor_sync(~0u, x.x, lanes), x.y += __shfl_xor_sync(~0u, x.y, lanes);
  x.z += __shfl_xor_sync(~0u, x.z, lanes), x.w += __shfl_xor_sync(~0u, x.w, lanes);
}

/// Adds up the parts of all ranks for this rank's columns: four ranks a thread, by up to four
/// neighbouring threads.
template <typename Block>
__device__ __forceinline__ void write_outputs(const Block& b) {
  using T = typename Block::Element;
  constexpr int kEach = 4;
  const DecodeAttention& p = b.p;
  const int log_ranks = b.a.log_ranks(), log_each = Block::kLogQuads - log_ranks;
  const int log_split = max(0, log_ranks - 2), items = b.group << log_each;
  const float scale = b.a.scale_log2;
  const auto over_ranks = [&](const auto& add) {
#pragma unroll
    for (int lanes = 1; lanes < kMostRanks / kEach; lanes *= 2)
      if (lanes < 1 << log_split) add(lanes);
  };
#pragma unroll 1
  for (int first = b.warp * 32; first < items << log_split; first += b.threads) {
    const int i = first + b.lane, item = min(i >> log_split, items - 1), head = item >> log_each;
    const int rank = (i & ((1 << log_split) - 1)) * kEach;  // this thread's first
    const bool writes = rank == 0 && i >> log_split < items;
    float2 stats[kEach];
#pragma unroll
    for (int r = 0; r < kEach; ++r)
      stats[r] = rank + r < b.ranks ? b.stats(0)[(rank + r) * kMostHeads + head]
                                    : make_float2(-INFINITY, 0.f);
    float2 total = make_float2(-INFINITY, 0.f);
#pragma unroll
    for (int r = 0; r < kEach; ++r) total.x = fmaxf(total.x, stats[r].x);
    over_ranks([&](int lanes) { total.x = fmaxf(total.x, __shfl_xor_sync(~0u, total.x, lanes)); });
    float weights[kEach];
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      weights[r] = share_of(stats[r].x, total.x, scale);
      total.y += weights[r] * stats[r].y;
    }
    over_ranks([&](int lanes) { total.y += __shfl_xor_sync(~0u, total.y, lanes); });
    const float inverse = total.y == 0.f ? 0.f : __frcp_rn(total.y);
    if (writes && b.row.rank == 0 && p.lse[kSel] != nullptr && item == head << log_each)
      p.lse[kSel][b.first_head() + head] = lse_of(total, scale);
    const int64_t to = ((b.first_head() + head) * Block::kQuads + (b.row.rank << log_each) +
                        (item & ((1 << log_each) - 1))) *
                       2;  // in pairs
    float4 outs[3] = {};   // those of all branches side by side: their latencies are one
#pragma unroll
    for (int branch = 0; branch < 3; ++branch)
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        if (rank + r >= b.ranks) continue;
        const float4 part = b.inbox()[((branch << log_ranks) + rank + r) * items + item];
        const float weight = branch == kSel ? weights[r] * inverse : 1.f;
        outs[branch].x += weight * part.x, outs[branch].y += weight * part.y;
        outs[branch].z += weight * part.z, outs[branch].w += weight * part.w;
      }
    over_ranks([&](int lanes) {
#pragma unroll
      for (int branch = 0; branch < 3; ++branch) add_over(outs[branch], lanes);
    });
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int branch = 0; branch < 3; ++branch) {
      const float4 out = outs[branch];
      const float gate = b.shared.gates[head][branch];
      sum.x += gate * out.x, sum.y += gate * out.y, sum.z += gate * out.z, sum.w += gate * out.w;
      if (writes && p.branch_out[branch] != nullptr)
        *reinterpret_cast<uint2*>(static_cast<uint32_t*>(p.branch_out[branch]) + to) =
            make_uint2(pack<T>(out.x, out.y), pack<T>(out.z, out.w));
    }
    if (writes)
      *reinterpret_cast<uint2*>(static_cast<uint32_t*>(p.out) + to) =
          make_uint2(pack<T>(sum.x, sum.y), pack<T>(sum.z, sum.w));
  }
}

}  // namespace nsa::kernels::portable
